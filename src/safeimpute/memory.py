"""Main memory: what a fit of preset `best` will need, and a ceiling that is kept because it is planned for.

The ceiling belongs to the process, not to a model: `--memory` sets it, processes started from here inherit it. Only the
size of the blocks in which evidence is read depends on it, so a ceiling changes no result; where even small blocks
do not fit, the fit is refused before it starts.
"""

import os
import resource
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.graph.neighbour_pairs import thread_count

if TYPE_CHECKING:  # the command line sets the ceiling before anything heavy is imported
    from safeimpute.imputers.blend import BlendSettings
    from safeimpute.splits import Task

VARIABLE = "SAFEIMPUTE_MEMORY_GIB"
GIB, MIB = 2**30, 2**20
BLOCKS = (65_536, 32_768, 16_384, 8_192, 4_096)  # visits read at once, the largest that fits
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
    ceiling = ceiling_bytes()
    if ceiling is None:
        return settings
    size = _size(settings, task, by_patient)
    taken = max(_resident_bytes(), 0)
    for block in [each for each in BLOCKS if each <= max(settings.block_visits, BLOCKS[-1])]:
        if taken + MARGIN * (size.kept() + size.working(block)) <= ceiling:
            return replace(settings, block_visits=block)
    needed = taken + MARGIN * (size.kept() + size.working(BLOCKS[-1]))
    raise OptionError(
        f"--memory {ceiling / GIB:g} GiB cannot be kept: {size.visits:,} visits with {size.labs} other labs "
        f"need about {needed / GIB:.1f} GiB, of which {taken / GIB:.1f} are taken already. Give --memory "
        f"{_rounded_up(needed / GIB):g} or more, leave labs out with --exclude, or fit on a random sample of patients."
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


def _size(settings: "BlendSettings", task: "Task", by_patient: bool) -> Size:
    visits, evidence = task.visits, settings.evidence
    return Size(
        visits=len(visits),
        learnable=int(np.sum(task.training | task.validation)),
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
