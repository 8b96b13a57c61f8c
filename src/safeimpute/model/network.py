"""One promise over several sites: their sums added, decided once, and held against each other."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from safeimpute.errors import ModelFolderError
from safeimpute.machine.files import finished_folder
from safeimpute.model.folder import save_calibrated
from safeimpute.model.frozen import FrozenModel
from safeimpute.model.manifest import own_checksum
from safeimpute.model.site_file import AtSite, SiteFile, promise_of, read_site
from safeimpute.model.site_noise import Noisy, sums_of_noisy
from safeimpute.model.whole_table import BINS, RATIOS, TableSums, calibratable, calibrated_anew, summed
from safeimpute.selection.cutoff import Cutoff, find_cutoffs, rule_of
from safeimpute.selection.enough import EffectiveSize, lowest_level
from safeimpute.selection.sums import Sums
from safeimpute.settings import Settings
from safeimpute.visits.arrays import FloatArray

ALARM = 0.05  # chance of naming any site where none differs
AHEAD = (50, 200, 1_000)  # measured values that a new site may have


@dataclass(frozen=True)
class SiteResult:
    """One site beside the others."""

    site: str
    visits: float  # of equal weight, worth the measured ones
    patients: float
    cutoff: float | None  # that the site's own sums support
    share: float | None  # of risky values below the joint cut-off
    expected: float | None  # by the risks of its values there
    error: float | None  # its standard error
    distance: float | None  # of share from expected, from the other sites', in standard errors
    alarm: str  # empty where the site differs by no more than chance


@dataclass(frozen=True)
class Joined:
    """One promise over several sites."""

    promise: Mapping[str, Any]
    cutoffs: Mapping[str, Cutoff]
    refused: str
    sites: tuple[SiteResult, ...]
    q: float | None  # Cochran's, of the sites' shares below the joint cut-off less what their risks expect
    q_chance: float | None  # of one so large where no site differs

    @property
    def words(self) -> list[str]:
        """The result in plain sentences."""
        level, released = self.promise["level"], [each for each in self.cutoffs.values() if each.risk is not None]
        sure = (
            f"with {100 * self.promise['confidence']:g} % confidence " if self.promise["promise"] == "confident" else ""
        )
        said = [
            f"{len(self.sites)} sites, one promise: {sure}at most {100 * level:g} % unacceptable among released values."
        ]
        if self.refused:
            said.append(f"Nothing is promised: {self.refused}.")
        elif not released:
            said.append("No risk keeps the level over all sites: nothing is released.")
        for each in released:
            said.append(f"Joint cut-off: risk {each.risk:.4g} (share below it {each.share:.3f}).")
        if self.q_chance is not None:
            differ = "differ by more than chance" if self.q_chance < ALARM else "differ by no more than chance"
            said.append(
                f"Given the risks, the sites' shares {differ} (Cochran's Q {self.q:.1f}, chance {self.q_chance:.2g})."
            )
        said += [f"Alarm: {each.site} {each.alarm}." for each in self.sites if each.alarm]
        if released and not self.refused:
            said.append(
                "The promise is for all sites together; a site with an alarm should release by its own cut-off."
            )
        return said


def join_files(
    model: Path, files: Sequence[Path], out: Path, *, keys: Path | None = None, force: bool = False
) -> Joined:
    """Verify and add the sums of several sites, decide, and write `model/` and `sites.json` into a folder.

    Parameters
    ----------
    model : Path
        The model every site was given.
    files : sequence of Path
        One file of sums per site.
    out : Path
        Folder for the joined model and what was found.
    keys : Path, optional
        Folder with a public key `SITE.pub` for each site, by which its file must be signed.
    force : bool
        Replace an earlier result there.
    """
    saved, frozen = calibratable(model)
    sites = [read_site(path, saved, frozen, keys) for path in files]
    _require_distinct(sites)
    together = joined_sums(sites, frozen)
    anew, diagnosis = calibrated_anew(frozen, saved.settings, together)
    if not any(together.ratios):
        anew = replace(anew, intervals=frozen.intervals)
    found = compare(sites, frozen, saved.settings, anew.cutoffs, anew.no_promise)
    told = asdict(diagnosis) | {"sites": [{"site": each.site, "digest": each.content["digest"]} for each in sites]}
    with finished_folder(out, force=force) as partial:
        save_calibrated(partial / "model", saved, anew, told)
        (partial / "sites.json").write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
        (partial / "sites.txt").write_text("\n".join(found.words) + "\n", encoding="utf-8")
    return found


def _require_distinct(sites: Sequence[SiteFile]) -> None:
    seen: dict[str, str] = {}
    for each in sites:
        alone = own_checksum({name: part for name, part in each.content.items() if name in ("table", "noisy")})
        if each.site in seen:
            raise ModelFolderError(f"site {each.site!r} is given twice. Give each site's file once.")
        if alone in seen.values():
            raise ModelFolderError(f"the sums of site {each.site!r} are those of another site under a new name.")
        seen[each.site] = alone


def joined_sums(sites: Sequence[SiteFile], frozen: FrozenModel) -> TableSums:
    """All sites together; noise is allowed for once, in its sum."""
    tables = [each.sums.table for each in sites if each.sums.table is not None]
    noisy = {group: [each.sums.noisy[group] for each in sites if each.sums.noisy] for group in frozen.cutoffs}
    lumps = {
        group: sums_of_noisy(reduce(Noisy.plus, each), _grid(frozen, group)) for group, each in noisy.items() if each
    }
    return summed([*tables, *([_only(lumps)] if lumps else [])])


def _grid(frozen: FrozenModel, group: int) -> list[float]:
    return [float(each) for each in frozen.reference.grid(group)]


def _only(groups: Mapping[int, Sums]) -> TableSums:
    """Sums about whose visits nothing else is known."""
    nothing, totals = [0] * BINS, [sum(each.totals[k] for each in groups.values()) for k in range(3)]
    held: dict[int, tuple[Sums, ...]] = {group: (each,) for group, each in groups.items()}
    return TableSums(held, totals, 0, 0, 0, nothing, nothing, nothing, [0] * (len(RATIOS) + 1))


def compare(
    sites: Sequence[SiteFile], frozen: FrozenModel, settings: Settings, cutoffs: Mapping[int, Cutoff], refused: str
) -> Joined:
    """Each site's own decision, and its share of risky values below the joint cut-off beside the others'."""
    own = [find_cutoffs(joined_sums([each], frozen).groups, rule_of(settings)) for each in sites]
    counted = [_below(each, frozen, cutoffs) for each in sites]
    shares = np.array([risky / weight if weight > 0 else np.nan for risky, weight, *_ in counted])
    there = np.isfinite(shares)
    total = sum(weight for _, weight, *_ in counted)
    pooled = sum(risky for risky, *_ in counted) / total if total > 0 else 0.0
    error = np.array([share_error(each, pooled) for each in counted])
    hoped = np.array([expected / weight if weight > 0 else np.nan for _, weight, expected, *_ in counted])
    distance, q, chance = heterogeneity(shares - hoped, error)
    line = float(norm.isf(ALARM / 2.0 / max(int(there.sum()), 1)))
    results = []
    for k, (each, (own_cutoffs, _)) in enumerate(zip(sites, own, strict=True)):
        sizes = [cutoff.effective_size for cutoff in own_cutoffs.values()]
        single = next(iter(own_cutoffs.values())) if len(own_cutoffs) == 1 else None
        known = bool(there[k])
        results.append(
            SiteResult(
                each.site,
                sum(size.visits for size in sizes),
                sum(size.patients for size in sizes),
                None if single is None else single.risk,
                float(shares[k]) if known else None,
                float(hoped[k]) if known else None,
                float(error[k]) if known else None,
                float(distance[k]) if np.isfinite(distance[k]) else None,
                _alarm(float(shares[k]), float(error[k]), float(distance[k]), settings.fdr, line),
            )
        )
    told = {str(group): cutoff for group, cutoff in cutoffs.items()}
    return Joined(promise_of(settings), told, refused, tuple(results), q, chance)


def _alarm(share: float, error: float, distance: float, alpha: float, line: float) -> str:
    if share - line * error > alpha:
        return f"has a share of {share:.3f} below the joint cut-off, above the level by more than chance"
    if abs(distance) > line:
        where = "more" if distance > 0 else "less"
        return f"has a share of {share:.3f} below the joint cut-off: given the risks {where} than the other sites"
    return ""


def heterogeneity(shares: FloatArray, error: FloatArray) -> tuple[FloatArray, float | None, float | None]:
    """Each share's distance from the others' in standard errors, Cochran's Q, and the chance of one so large."""
    there = np.isfinite(shares) & (error > 0)
    distance = np.full(len(shares), np.nan)
    if there.sum() < 2:
        return distance, None, None
    precision = np.where(there, 1.0 / np.square(np.where(there, error, 1.0)), 0.0)
    known = np.where(there, shares, 0.0)
    rest = precision.sum() - precision
    others = ((precision * known).sum() - precision * known) / rest
    distance[there] = ((known - others) / np.sqrt(1.0 / np.where(there, precision, 1.0) + 1.0 / rest))[there]
    mean = float((precision * known).sum() / precision.sum())
    q = float((precision * np.square(known - mean)).sum())
    return distance, q, float(chi2.sf(q, int(there.sum()) - 1))


Below = tuple[float, ...]


def _below(site: SiteFile, frozen: FrozenModel, cutoffs: Mapping[int, Cutoff]) -> Below:
    """A site's sums below the joint cut-offs, in a line between what it shows."""
    found = np.zeros(8)
    for group, cutoff in cutoffs.items():
        if cutoff.risk is None:
            continue
        grid, noisy, table = frozen.reference.grid(group), site.sums.noisy.get(group), site.sums.table
        ends = np.array(noisy.places if noisy else site.sums.shown[group])
        sums = sums_of_noisy(noisy, grid.tolist(), 0.0) if noisy else table.groups[group][-1]  # type: ignore[union-attr]
        visit = [sums.visit(name) for name in ("risky_weight", "weight", "expected", "weight_square")]
        patient = [sums.patient(name) for name in ("risky_square", "size_risky", "size_square")]
        noise = np.zeros(len(grid))
        noise[ends] = noisy.variance * np.arange(1, len(ends) + 1) if noisy else 0.0
        place = float(np.searchsorted(grid, cutoff.risk))
        found += [np.interp(place, np.r_[-1, ends], np.r_[0.0, each[ends]]) for each in (*visit, *patient, noise)]
    return tuple(found.tolist())


def share_error(counted: Below, share: float) -> float:
    """Of a site's share, patients being the units, if it is that of all sites; never less than of single visits."""
    _, weight, _, visits, risky_square, size_risky, size_square, noise = counted
    if weight <= 0:
        return 0.0
    patients = risky_square - 2.0 * share * size_risky + share**2 * size_square
    return math.sqrt(max(patients, share * (1.0 - share) * visits) + noise) / weight


def transport(at: AtSite) -> list[str]:
    """How far a site's visits lie from the fit's, and what can be promised there alone, before and after measuring."""
    visits, settings, reference = at.visits, at.saved.settings, at.model.reference
    far = []
    for lab, name in enumerate(visits.lab_names):
        values = visits.labs[:, lab]
        values = values[np.isfinite(values)]
        if len(values) and np.isfinite(reference.percentiles[lab]).all():
            far.append((float(reference.ranks(values, lab).mean()), float(reference.strange(values, lab).mean()), name))
    far.sort(key=lambda each: -abs(each[0] - 0.5))
    said = [
        f"{name}: values rank at {100 * rank:.0f} of 100 among the fit's (50: as there), "
        f"{100 * strange:.1f} % lie beyond them"
        for rank, strange, name in far[:3]
    ]
    measured = np.isfinite(visits.target_values)
    said.append(
        f"{settings.target} is measured at {100 * measured.mean():.0f} % of the visits; at the fit "
        f"{100 * reference.present[visits.target]:.0f} %"
    )
    said.append(
        "Nothing is promised for a site alone before errors are known there; the joint promise is over all sites."
    )
    per_patient = measured.sum() / max(len(np.unique(visits.patient[measured])), 1)
    for ahead in AHEAD:
        level = lowest_level(EffectiveSize(float(ahead), ahead / max(per_patient, 1.0)))
        words = "none" if level is None else f"{100 * level:g} % or higher"
        said.append(f"With {ahead:,} measured values, at best of equal weight, a level of its own could be: {words}")
    return said
