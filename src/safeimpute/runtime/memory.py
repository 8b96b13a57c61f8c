"""Main memory: what fitting or scoring with preset `best` needs, and a ceiling kept because it is planned for.

The ceiling belongs to the process, not to a model: `--memory` sets it, processes started from here inherit it. Only the
size of the blocks in which visits are read depends on it, so a ceiling changes no result; where even small blocks
do not fit, the work is refused before it starts.
"""

import os
import resource
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.neighbours.pairs import thread_count

if TYPE_CHECKING:  # the command line sets the ceiling before anything heavy is imported
    from safeimpute.records.arrays import VisitArrays
    from safeimpute.splits.roles import Task
    from safeimpute.systems.best.blend import BlendSettings
    from safeimpute.systems.best.evidence import EvidenceSettings

VARIABLE = "SAFEIMPUTE_MEMORY_GIB"
GIB, MIB = 2**30, 2**20
BLOCKS = (65_536, 32_768, 16_384, 8_192, 4_096)  # visits read at once, the largest that fits
PORTIONS = (20_000, 10_000, 5_000, 2_500)  # visits scored at once, likewise
PER_SCORED = 400  # bytes a scored visit keeps: its scores, and its row of the imputation table
LEARNT_AT_ONCE = 250_000  # visits at most in a table of raw features that trees are fitted to
LIBRARIES = 350 * MIB  # loaded on the way, and figures and report after the fit
PER_THREAD = 96 * MIB  # working arrays of the neighbour search and of tree building
MARGIN = 1.1  # allocators keep some of what is freed


@dataclass(frozen=True)
class Size:
    """What the memory of a fit depends on."""

    visits: int
    learnable: int  # visits with a target the risk learns from
    labs: int  # beside the target
    attributes: int
    own: int  # own visits looked at
    analogues: int
    by_patient: bool = False  # evidence is read twice: of the patients that train, then of all

    @property
    def columns(self) -> int:
        """Of the evidence."""
        return 26 + self.attributes + 8 * self.labs

    def kept(self) -> int:
        """Bytes alive at once when the fit is at its largest."""
        features = self.columns + 24
        evidence = 4 * self.columns + 8 * (5 + 2 * self.own + 3 * self.analogues)
        visit = 8 * (self.labs + self.attributes + 12) + evidence * (2 if self.by_patient else 1)
        results = 8 * 40 + 4 * features  # predictions of every part, signals, risks; what weighs the visits
        return self.visits * (visit + results) + self.learnable * 5 * features + self._raw(features)

    def working(self, block: int) -> int:
        """Bytes that come and go: a block of evidence while it is read, and what libraries take."""
        per_visit = 8 * (30 * self.labs + 12 * self.own + 6 * self.analogues + 60)
        return block * per_visit + thread_count() * PER_THREAD + LIBRARIES

    def _raw(self, features: int) -> int:
        return min(self.visits, LEARNT_AT_ONCE) * 6 * features


def within_ceiling(settings: "BlendSettings", task: "Task", *, by_patient: bool) -> "BlendSettings":
    """The settings with blocks small enough for the ceiling, if there is one; refuses what cannot be kept."""
    if ceiling_bytes() is None:
        return settings
    learnable = int(np.sum(task.training | task.validation))
    size = _size(task.visits, settings.evidence, learnable, by_patient=by_patient)
    block = _largest(
        [each for each in BLOCKS if each <= max(settings.block_visits, BLOCKS[-1])],
        lambda block: size.kept() + size.working(block),
        f"{size.visits:,} visits with {size.labs} other labs",
        "leave labs out with --exclude, or fit on a random sample of patients",
    )
    return replace(settings, block_visits=block)


def scored_at_once(visits: "VisitArrays", evidence: "EvidenceSettings", most: int) -> int:
    """How many visits to score at a time, at most so many; refuses a table that the ceiling cannot hold."""
    if ceiling_bytes() is None:
        return most
    portion = replace(_size(visits, evidence), visits=1)
    return _largest(
        [each for each in PORTIONS if each <= max(most, PORTIONS[-1])],
        lambda block: len(visits) * PER_SCORED + block * portion.kept() + portion.working(block),
        f"scoring {len(visits):,} visits with {portion.labs} other labs",
        "or score the table in parts, by patient (the rule cutoff decides each visit alone)",
    )


def _largest(blocks: Iterable[int], bytes_needed: Callable[[int], float], what: str, instead: str) -> int:
    """The first block that the ceiling can hold beside what is taken already; blocks come largest first."""
    ceiling, taken = ceiling_bytes() or 0, max(_resident_bytes(), 0)
    needed = 0.0
    for block in blocks:
        needed = taken + MARGIN * bytes_needed(block)
        if needed <= ceiling:
            return block
    raise OptionError(
        f"--memory {ceiling / GIB:g} GiB cannot be kept: {what} need about {needed / GIB:.1f} GiB, of which "
        f"{taken / GIB:.1f} are taken already. Give --memory {_rounded_up(needed / GIB):g} or more, {instead}."
    )


def set_ceiling(gib: float | None) -> None:
    """Of this process and those it starts."""
    if gib is not None:
        os.environ[VARIABLE] = f"{gib:g}"


def ceiling_bytes() -> int | None:
    """The ceiling, if one was set."""
    text = os.environ.get(VARIABLE, "")
    try:
        return int(float(text) * GIB) if text else None
    except ValueError:
        raise OptionError(f"{VARIABLE} is {text!r}: give a number of GiB such as 8.") from None


def _size(
    visits: "VisitArrays", evidence: "EvidenceSettings", learnable: int = 0, *, by_patient: bool = False
) -> Size:
    return Size(
        visits=len(visits),
        learnable=learnable,
        labs=visits.labs.shape[1] - 1,
        attributes=visits.attributes.shape[1],
        own=evidence.own_each_way * (1 if evidence.past_only else 2),
        analogues=evidence.analogues,
        by_patient=by_patient,
    )


def _resident_bytes() -> int:
    """Memory this process holds now; where the system does not say, the most it ever held."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _rounded_up(gib: float) -> float:
    return float(np.ceil(2 * gib) / 2)
