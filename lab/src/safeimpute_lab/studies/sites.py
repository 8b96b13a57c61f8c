"""Several sites, one promise: what is released where, what withholding and noise cost, and whether a prior helps.

    python -m safeimpute_lab sites rules --repetitions 300          eight drawn hospitals, rules alone, odds known
    python -m safeimpute_lab sites alarms --repetitions 300         how often a hospital is named
    python -m safeimpute_lab sites real --data nafld|icu            real tables split by a column as if by site

The hospitals differ in size, in how often they measure and in how often a value of the same risk is unacceptable.
Judged is the long run: the share among all that the cut-off would ever release, over all hospitals and in each.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import norm

from safeimpute import SafeImputer
from safeimpute.model.network import ALARM, heterogeneity, join_files, share_error
from safeimpute.model.scorer import Scorer
from safeimpute.model.site_file import open_site, write_site
from safeimpute.model.site_noise import Noisy, noisy_cells, sums_of_noisy
from safeimpute.model.site_sums import GOOD, RISKY, Cells, filled, shown_places
from safeimpute.selection.curve import Curve, Steps, fit_curve
from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.ledger import Ledger, risk_grid, sums_of
from safeimpute.selection.sums import Balances, Sums
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.evidence.datasets import BODY, data_folder, icu_stays, nafld
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY
from safeimpute_lab.studies.guarantee.worlds import World, draw_world


class Hospital(NamedTuple):
    """How many patients, how much of what the others measure is measured, how much log odds of an error differ."""

    patients: int
    measures: float
    worse: float


HOSPITALS = (
    Hospital(60, 1.0, 0.0),
    Hospital(100, 0.5, 0.4),
    Hospital(150, 0.8, -0.3),
    Hospital(250, 1.0, 0.3),
    Hospital(400, 0.4, 0.0),
    Hospital(700, 0.9, -0.4),
    Hospital(1_200, 0.7, 0.2),
    Hospital(2_500, 1.0, -0.1),
)
ALPHA = 0.2
LONG_RUN = 8_000  # patients a hospital
LEAST = (10, 20)
EPSILONS = (1.0, 4.0)


def draw_hospital(hospital: Hospital, rng: np.random.Generator, patients: int, scenario: str) -> World:
    """A world whose errors and measuring are moved away from what the model of all hospitals expects."""
    world = draw_world(BY_KEY[scenario], rng, patients)
    chance = np.clip(world.risk, 1e-4, 1 - 1e-4)
    moved = 1.0 / (1.0 + np.exp(-(np.log(chance / (1.0 - chance)) + hospital.worse)))
    turned = rng.random(len(chance))
    risky = np.where(
        moved >= chance,
        world.risky | (turned < (moved - chance) / (1.0 - chance)),
        world.risky & (turned < moved / chance),
    )
    measured = world.measured & (rng.random(len(chance)) < hospital.measures)
    weight = (1.0 + world.weight) / hospital.measures - 1.0
    return replace(world, risky=risky, measured=measured, weight=weight)


def ledger_of(world: World, grid: FloatArray) -> Ledger:
    """What a hospital keeps."""
    return Ledger(world.entries(), grid, world.risk[world.candidate])


def cells_of(world: World, grid: FloatArray) -> Cells:
    """The same with patients, as the program holds it at a site."""
    rows = world.inside
    kind = np.where(world.measured, np.where(world.risky, RISKY, GOOD), 2)[rows]
    nothing = np.zeros(int(rows.sum()), np.int64)
    place = np.searchsorted(grid, world.risk[rows], side="left")
    return Cells(world.patient[rows].astype(np.uint64), nothing, place, kind, world.weight[rows], nothing)


@dataclass(frozen=True)
class Shrunken:
    """A site's balances whose curve is pulled to the network's instead of to the risks."""

    own: Sums
    network: Curve

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    @property
    def curve(self) -> Curve:
        """The site's curve, in the risks as the network's curve reads them."""
        logit = self.network.terms @ self.network.coefficients
        return fit_curve(_Read(self.own, 1.0 / (1.0 + np.exp(-logit))))


@dataclass(frozen=True)
class _Read:
    own: Sums
    thresholds: FloatArray

    @property
    def effective_size(self) -> Any:
        return self.own.effective_size

    @property
    def steps(self) -> Steps:
        found = self.own.steps
        return replace(found, expected=found.weight * self.thresholds)


def study(
    repetitions: int, scenario: str, family: int, hospitals: Sequence[Hospital] = HOSPITALS
) -> dict[str, list[tuple[float, ...]]]:
    """Per way of joining one row a repetition: long-run share and power over all, then the share of every hospital."""
    far = [draw_hospital(each, np.random.default_rng([7, k]), LONG_RUN, scenario) for k, each in enumerate(hospitals)]
    size = [each.patients / LONG_RUN for each in hospitals]
    found: dict[str, list[tuple[float, ...]]] = {}
    for repetition in range(repetitions):
        rng = np.random.default_rng([family, repetition])
        grid = risk_grid(draw_world(BY_KEY[scenario], rng, 700).risk)
        worlds = [draw_hospital(each, rng, each.patients, scenario) for each in hospitals]
        sums = [sums_of(ledger_of(each, grid)) for each in worlds]
        for name, cutoffs in ways(worlds, sums, grid, rng).items():
            found.setdefault(name, []).append(judged(far, size, cutoffs))
    return found


def ways(
    worlds: Sequence[World], sums: Sequence[Sums], grid: FloatArray, rng: np.random.Generator
) -> dict[str, list[float | None]]:
    """Every way of deciding -> the cut-off of each hospital."""
    rule, several = Rule("unmeasured", ALPHA), len(worlds)
    pooled = reduce(Sums.plus, sums)
    cells = [cells_of(each, grid) for each in worlds]
    found: dict[str, list[float | None]] = {}

    def joint(name: str, together: Balances) -> None:
        found[name] = [find_cutoff(together, rule).risk] * several
        found[f"{name}, confident"] = [find_cutoff(together, Rule("unmeasured", ALPHA, "confident")).risk] * several

    joint("joined", pooled)
    for least in LEAST:
        shown = [shown_places(each, len(grid), least, (0, 1, 2)) for each in cells]
        kept = [filled(each, ends) for each, ends in zip(sums, shown, strict=True) if ends]
        joint(f"joined, cells of {least}", reduce(Sums.plus, kept))
    cap = 4.0 * float(np.mean(np.concatenate([each.entries().weight for each in worlds])))
    for epsilon in EPSILONS:
        each = [noisy_cells(some.at(some.kind <= RISKY), {0: len(grid)}, cap, epsilon, rng)[0] for some in cells]
        joint(f"joined, epsilon {epsilon:g}", sums_of_noisy(reduce(Noisy.plus, each), grid.tolist()))
    found["each its own"] = [find_cutoff(each, rule).risk for each in sums]
    found["each its own, prior"] = [find_cutoff(Shrunken(each, pooled.curve), rule).risk for each in sums]
    return found


def judged(far: Sequence[World], size: Sequence[float], cutoffs: Sequence[float | None]) -> tuple[float, ...]:
    """In the long run: released, risky and good ones over all; released and risky ones of every hospital; cut-off."""
    counts = []
    for world, times, cutoff in zip(far, size, cutoffs, strict=True):
        there = world.candidate
        let = there & (world.risk <= (-1.0 if cutoff is None else cutoff))
        counts.append((times * let.sum(), times * (let & world.risky).sum(), times * (there & ~world.risky).sum()))
    table = np.array(counts, dtype=np.float64)
    first = cutoffs[0]
    return (*table.sum(axis=0), *table[:, 0], *table[:, 1], *table[:, 2], -1.0 if first is None else first)


def say(found: Mapping[str, Sequence[tuple[float, ...]]], hospitals: Sequence[Hospital] = HOSPITALS) -> None:
    """One line for each way: share over all (standard error), draws above, power, empty draws, share in each."""
    k = len(hospitals)
    exact = {name: np.array(each)[:, -1] for name, each in found.items()}
    print(
        "| way | share over all (se) | draws above | power | share in each hospital | power in each | larger cut-off |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, each in found.items():
        rows = np.array(each)
        released, risky, good = rows[:, 0], rows[:, 1], rows[:, 2]
        pooled = risky.sum() / max(released.sum(), 1e-9)
        error = np.std(risky - pooled * released) / np.sqrt(len(rows)) / max(released.mean(), 1e-9)
        above = np.mean(risky > ALPHA * released + 1e-9)
        of, bad, fine = (rows[:, 3 + k * j : 3 + k * (j + 1)] for j in range(3))
        shares = bad.sum(axis=0) / np.maximum(of.sum(axis=0), 1e-9)
        power = (of - bad).sum(axis=0) / fine.sum(axis=0)
        base = exact["joined, confident" if name.endswith("confident") else "joined"]
        larger = "" if name.startswith("each") else f"{np.mean(exact[name] > base):.2f}"
        print(
            f"| {name} | {pooled:.3f} ({error:.3f}) | {above:.2f} | {((released - risky) / good).mean():.3f} | "
            f"{' '.join(f'{one:.2f}' for one in shares)} | {' '.join(f'{one:.2f}' for one in power)} | {larger} |"
        )


def alarms(repetitions: int, scenario: str, family: int, worse: float) -> None:
    """How often hospitals are named, with the sixth one's log odds of an error moved; judged at the joint cut-off."""
    hospitals = [Hospital(each.patients, each.measures, worse if k == 5 else 0.0) for k, each in enumerate(HOSPITALS)]
    q, named, right = 0, 0, 0
    for repetition in range(repetitions):
        rng = np.random.default_rng([family, repetition])
        grid = risk_grid(draw_world(BY_KEY[scenario], rng, 700).risk)
        sums = [sums_of(ledger_of(draw_hospital(each, rng, each.patients, scenario), grid)) for each in hospitals]
        cutoff = find_cutoff(reduce(Sums.plus, sums), Rule("unmeasured", ALPHA)).risk
        if cutoff is None:
            continue
        place = int(np.searchsorted(grid, cutoff))
        below = [
            tuple(
                float(row[place])
                for row in (
                    *(
                        each.visit("risky_weight"),
                        each.visit("weight"),
                        each.visit("expected"),
                        each.visit("weight_square"),
                    ),
                    *(each.patient("risky_square"), each.patient("size_risky"), each.patient("size_square")),
                    np.zeros(len(grid)),
                )
            )
            for each in sums
        ]
        risky, weight, hoped = (np.array([each[k] for each in below]) for k in range(3))
        error = np.array([share_error(each, float(risky.sum() / weight.sum())) for each in below])
        distance, _, chance = heterogeneity((risky - hoped) / weight, error)
        far = np.abs(distance) > norm.isf(ALARM / 2.0 / len(sums))
        q, named, right = q + (chance is not None and chance < ALARM), named + bool(far.any()), right + bool(far[5])
    print(
        f"{scenario}, {worse:+g}: Q {q / repetitions:.3f}, any named {named / repetitions:.3f}, "
        f"sixth {right / repetitions:.3f}"
    )


def real(data: str, seed: int) -> None:
    """A fit on one site's patients; at all sites a fifth of the measured values hidden, and judged where released."""
    if data == "nafld":
        table = nafld(6000).filter(pl.col("hdl").is_not_null()).sort("subject_id", "time")
        site = pl.col("age").first().cut([35, 50, 65], labels=["under 35", "35 to 50", "50 to 65", "65 or more"])
        of = table.group_by("subject_id").agg(
            site=pl.concat_str(site.cast(pl.String), pl.lit(", male "), pl.col("male").first())
        )
        told: dict[str, Any] = {"target": "hdl", "tolerance": 5.0, "attributes": BODY}
    else:
        table = icu_stays().filter(pl.col("HCT").is_not_null()).sort("subject_id", "time")
        raw = pl.read_csv(data_folder() / "physionet2012" / "set-a_long.csv.gz")
        kind = raw.filter(pl.col("Parameter") == "ICUType")
        of = kind.select(subject_id="RecordID", site=pl.format("ICU type {}", pl.col("Value").cast(pl.Int64))).unique(
            "subject_id"
        )
        told = {"target": "HCT", "tolerance": 2.5}
    target, rng = told["target"], np.random.default_rng(seed)
    hide = rng.random(len(table)) < 0.2
    truth = table.with_columns(truth=pl.col(target), hidden=pl.Series(hide)).join(of, on="subject_id")
    shown = table.with_columns(pl.when(pl.Series(~hide)).then(pl.col(target)).alias(target))
    first = of["subject_id"].sort().gather_every(3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SAFEIMPUTE_STATE"] = str(folder / "state")
        SafeImputer(fdr=ALPHA, **told).fit(shown.filter(pl.col("subject_id").is_in(first.implode()))).save(
            folder / "model"
        )
        for least in (1, 10):
            real_joined(folder, shown.join(of, on="subject_id"), truth, least)


def real_joined(folder: Path, shown: pl.DataFrame, truth: pl.DataFrame, least: int) -> None:
    """Every site's file written and joined; the share of unacceptable values among the hidden ones released."""
    files = []
    os.environ["SAFEIMPUTE_STATE"] = "off"
    for k, (name, part) in enumerate(shown.group_by("site", maintain_order=True)):
        part.drop("site").write_parquet(folder / f"{k}.parquet")
        files.append(folder / f"{k}-{least}.json")
        write_site(open_site(folder / "model", folder / f"{k}.parquet"), files[-1], site=str(name[0]), least=least)
    found = join_files(folder / "model", files, folder / f"joined-{least}")
    print(f"cells of {least}:", *found.words, sep="\n  ")
    scorer = Scorer.load(folder / f"joined-{least}" / "model")
    scored = scorer.score(shown.drop("site")).join(truth.filter("hidden"), on=["subject_id", "time"])
    risky = (pl.col("value") - pl.col("truth")).abs() >= scorer.settings.allowed_error.absolute
    own = {each.site: -1.0 if each.cutoff is None else each.cutoff for each in found.sites}
    scored = scored.with_columns(risky=risky, own=pl.col("risk") <= pl.col("site").replace_strict(own))
    for way in ("released", "own"):
        rows = scored.filter(way)
        print(
            f"  {'joint' if way == 'released' else 'own'} cut-off: released {len(rows)} of {len(scored)} hidden, "
            f"unacceptable {rows['risky'].mean():.3f}"
        )
        per_site = rows.group_by("site").agg(pl.len(), pl.col("risky").mean()).sort("site")
        print("   ", "; ".join(f"{site} {share:.3f} of {released}" for site, released, share in per_site.rows()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rules", "alarms", "real"))
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--scenario", default="covariate", choices=sorted(BY_KEY))
    parser.add_argument("--family", type=int, default=3036)
    parser.add_argument("--data", default="icu", choices=("nafld", "icu"))
    given = parser.parse_args()
    if given.what == "rules":
        say(study(given.repetitions, given.scenario, given.family))
    elif given.what == "alarms":
        for worse in (0.0, 0.3, 0.6):
            alarms(given.repetitions, given.scenario, given.family, worse)
    else:
        real(given.data, given.family)


if __name__ == "__main__":
    main()
