"""Simulation study of the guarantee: every claim beside the rule one would try first.

    python bench/guarantee_study.py --out docs [--quick]

Writes guarantee.json (the figures), guarantee.svg and .png, and guarantee.md from guarantee_template.md. Ends
with an error if a rule that makes a claim exceeds its level by more than three standard errors.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import guarantee_scenarios as scenarios
import numpy as np
from guarantee_cutoffs import LongRun, cutoff_rules
from guarantee_scenarios import ALPHAS, GAMMAS, Outcome, Outcomes

ICCS = (0.1, 0.3, 0.5, 0.7, 0.9)
BATCHES = (1, 2, 5, 20, 100, 1000)


@dataclass(frozen=True)
class Setting:
    """One scenario with its parameters; `claims` names the rules that promise FDR <= alpha in it."""

    key: str
    draw: Callable[[np.random.Generator], Outcomes]
    claims: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One rule at one level in one setting, over all repetitions."""

    setting: str
    rule: str
    alpha: float
    fdp: float
    fdp_se: float
    power: float
    nothing_released: float
    share_bad: float  # of everything ever released
    claimed: bool

    @property
    def holds(self) -> bool:
        return self.fdp <= self.alpha + 3 * self.fdp_se


def settings() -> list[Setting]:
    weighted = ("ours, known weights", "ours, estimated weights")
    both = ("ours, calibration patients", "ours, own visits")
    patients = ("ours", "ours without the pruning number", "one threshold fixed on validation")
    found = [
        Setting("no shift", scenarios.no_shift, ("ours",)),
        Setting("measuring shift", scenarios.measuring_shift, weighted),
        Setting("value-driven measuring", scenarios.value_driven_measuring, ()),
        Setting("visits growing with risk", scenarios.visits_growing_with_risk, ("ours",)),
        Setting("new patients, 40 new", partial(scenarios.new_patients, icc=0.5, n_new=40), patients),
        Setting("new patients, 600 new", partial(scenarios.new_patients, icc=0.5, n_new=600), patients),
        Setting("new patients, even counts", partial(scenarios.new_patients, icc=0.5, heavy=False), patients),
    ]
    for icc in ICCS:
        found.append(Setting(f"new patients, icc {icc}", partial(scenarios.new_patients, icc=icc), patients))
        draw = partial(scenarios.unmeasured_of_new_patients, icc=icc)
        found.append(Setting(f"unmeasured, icc {icc}", draw, both))
    few = partial(scenarios.unmeasured_of_new_patients, icc=0.5, n_new=20)
    found.append(Setting("unmeasured, 20 new", few, both))
    return found + [
        Setting(f"batch of {m}", partial(scenarios.few_candidates, m=m), ("BH",)) for m in BATCHES
    ]


def run_setting(setting: Setting, number: int, repetitions: int) -> list[Row]:
    outcomes: dict[tuple[str, float], list[Outcome]] = {}
    for repetition in range(repetitions):
        for key, outcome in setting.draw(np.random.default_rng([2026, number, repetition])).items():
            outcomes.setdefault(key, []).append(outcome)
    return [summarise(setting, *key, found) for key, found in outcomes.items()]


def summarise(setting: Setting, rule: str, alpha: float, found: list[Outcome]) -> Row:
    fdp = np.array([o.fdp for o in found])
    released = sum(o.released for o in found)
    return Row(
        setting=setting.key,
        rule=rule,
        alpha=alpha,
        fdp=float(fdp.mean()),
        fdp_se=float(fdp.std(ddof=1) / np.sqrt(len(fdp))),
        power=float(np.mean([o.power for o in found])),
        nothing_released=float(np.mean([o.released == 0 for o in found])),
        share_bad=sum(o.bad for o in found) / max(released, 1),
        claimed=rule in setting.claims,
    )


@dataclass(frozen=True)
class CutoffRow:
    """How often a stored cut-off's long-run share of bad releases exceeds alpha, and what it releases."""

    setting: str
    rule: str
    alpha: float
    error: float
    error_se: float
    power: float
    none: float


CUTOFF_SETTINGS = tuple(
    (f"{n} patients, {words}", n, icc, heavy)
    for n in (100, 250)
    for words, icc, heavy in (
        ("even counts, ICC 0.1", 0.1, False),
        ("heavy-tailed counts, ICC 0.5", 0.5, True),
        ("heavy-tailed counts, ICC 0.9", 0.9, True),
    )
)


def run_cutoffs(repetitions: int) -> list[CutoffRow]:
    rows = []
    for number, (name, n, icc, heavy) in enumerate(CUTOFF_SETTINGS):
        draw = partial(scenarios.draw_patients, icc=icc, heavy=heavy)
        long_run = LongRun.of(draw(np.random.default_rng([2026, 1000, number]), 150_000))
        found: dict[tuple[str, float], list[tuple[bool, float, bool]]] = {}
        for repetition in range(repetitions):
            rng = np.random.default_rng([2026, 2000 + number, repetition])
            calibration, validation = draw(rng, n), draw(rng, n)
            for alpha in ALPHAS:
                for rule, cutoff in cutoff_rules(calibration, validation, alpha).items():
                    share, power = long_run.at(cutoff)
                    found.setdefault((rule, alpha), []).append((share > alpha, power, cutoff is None))
        for (rule, alpha), values in found.items():
            error, power, none = np.mean(values, axis=0)
            se = np.sqrt(error * (1 - error) / repetitions)
            rows.append(CutoffRow(name, rule, alpha, float(error), float(se), float(power), float(none)))
    return rows


# --- the page ---


def release_table(rows: list[Row], names: dict[str, str], first: str) -> str:
    """One line per (setting, rule) in the order met; each cell is FDP ± SE and power."""
    lines = [f"| {first} | rule | " + " | ".join(f"α = {a:g}: FDP, power" for a in ALPHAS) + " |"]
    lines.append("|" + "---|" * (2 + len(ALPHAS)))
    cells = {(r.setting, r.rule, r.alpha): r for r in rows}
    for setting, rule in dict.fromkeys((r.setting, r.rule) for r in rows if r.setting in names):
        found = [cells[setting, rule, a] for a in ALPHAS]
        shown = [f"{mark(r)}{r.fdp:.3f} ± {r.fdp_se:.3f}{mark(r)}, {r.power:.2f}" for r in found]
        lines.append(f"| {names[setting]} | {rule} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def mark(row: Row) -> str:
    """Bold what exceeds its level by more than three standard errors."""
    return "" if row.holds else "**"


def batch_table(rows: list[Row]) -> str:
    lines = [
        "| candidates in the batch | "
        + " | ".join(f"α = {a:g}: FDP; share of bad among releases" for a in ALPHAS)
    ]
    lines = [lines[0] + " |", "|" + "---|" * (1 + len(ALPHAS))]
    for m in BATCHES:
        found = {r.alpha: r for r in rows if r.setting == f"batch of {m}"}
        shown = [f"{found[a].fdp:.3f} ± {found[a].fdp_se:.3f}; {found[a].share_bad:.3f}" for a in ALPHAS]
        lines.append(f"| {m} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def cutoff_table(rows: list[CutoffRow]) -> str:
    lines = ["| calibration | rule | " + " | ".join(f"α = {a:g}: error rate, power" for a in ALPHAS) + " |"]
    lines.append("|" + "---|" * (2 + len(ALPHAS)))
    cells = {(r.setting, r.rule, r.alpha): r for r in rows}
    for setting, rule in dict.fromkeys((r.setting, r.rule) for r in rows):
        found = [cells[setting, rule, a] for a in ALPHAS]
        bold = ["**" if r.error > 0.05 + 3 * r.error_se else "" for r in found]
        shown = [
            f"{b}{r.error:.3f} ± {r.error_se:.3f}{b}, {r.power:.2f}" for b, r in zip(bold, found, strict=True)
        ]
        lines.append(f"| {setting} | {rule} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def page(rows: list[Row], cutoffs: list[CutoffRow], repetitions: int) -> str:
    icc_names = {f"new patients, icc {icc}": f"{icc:g}" for icc in ICCS}
    other = {
        "new patients, 40 new": "40 new patients",
        "new patients, 600 new": "600 new patients",
        "new patients, even counts": "even, uninformative counts",
    }
    unmeasured = {f"unmeasured, icc {icc}": f"{icc:g}" for icc in ICCS}
    claimed = [r for r in rows if r.claimed]
    parts = {
        "repetitions": f"{repetitions:,}",
        "claims_checked": str(len(claimed)),
        "claims_held": str(sum(r.holds for r in claimed)),
        "no_shift": release_table(rows, {"no shift": "none"}, "shift"),
        "measuring_shift": release_table(rows, {"measuring shift": "who is measured"}, "shift"),
        "new_patients": release_table(rows, icc_names, "ICC"),
        "new_patients_other": release_table(rows, other, "at ICC 0.5"),
        "growing": release_table(rows, {"visits growing with risk": "36 + 4 patients"}, "patients"),
        "unmeasured": release_table(rows, {**unmeasured, "unmeasured, 20 new": "0.5, 20 new"}, "ICC"),
        "batches": batch_table(rows),
        "cutoffs": cutoff_table(cutoffs),
        "value_driven": release_table(rows, {"value-driven measuring": "by the value"}, "shift"),
        "worst_cutoff": f"{max(r.error for r in cutoffs if r.rule == 'ours'):.3f}",
        "gammas": ", ".join(f"{g:g}" for g in GAMMAS),
    }
    text = (Path(__file__).parent / "guarantee_template.md").read_text(encoding="utf-8")
    for name, value in parts.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def broken_claims(rows: Iterable[Row], cutoffs: Iterable[CutoffRow]) -> list[str]:
    broken = [
        f"{r.setting}, {r.rule}, alpha {r.alpha}: FDP {r.fdp:.3f}" for r in rows if r.claimed and not r.holds
    ]
    return broken + [
        f"cut-off, {r.setting}, alpha {r.alpha}: error rate {r.error:.3f}"
        for r in cutoffs
        if r.rule == "ours" and r.error > 0.05 + 3 * r.error_se
    ]


def main() -> int:
    from guarantee_figure import draw_figure

    parser = argparse.ArgumentParser(description="Simulation study of the guarantee.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions")
    arguments = parser.parse_args()
    repetitions = 200 if arguments.quick else 2000
    rows: list[Row] = []
    began = time.perf_counter()
    for number, setting in enumerate(settings()):
        rows += run_setting(setting, number, repetitions)
        print(f"{time.perf_counter() - began:6.0f} s  {setting.key}", flush=True)
    cutoffs = run_cutoffs(repetitions // 2)
    print(f"{time.perf_counter() - began:6.0f} s  stored cut-offs", flush=True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    figures = {
        "repetitions": repetitions,
        "releases": [asdict(r) | {"holds": r.holds} for r in rows],
        "cutoffs": [asdict(r) for r in cutoffs],
    }
    (arguments.out / "guarantee.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "guarantee.md").write_text(page(rows, cutoffs, repetitions), encoding="utf-8")
    draw_figure(figures, arguments.out)
    broken = broken_claims(rows, cutoffs)
    print("\n".join(["Broken claims:", *broken]) if broken else "Every claim held.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
