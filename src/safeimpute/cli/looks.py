"""A run as a look at its visits: what is shown a second time under another choice promises nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safeimpute.records.visits import Visits
    from safeimpute.runtime.looks import Look
    from safeimpute.settings import Settings


def look_at(visits: "Visits", settings: "Settings", out: Path, earlier: Path | None) -> "tuple[Look, bool]":
    """This run as a look at its visits, and whether runs beside it showed them before with other choices."""
    from safeimpute.records.looks import look_of
    from safeimpute.records.visits import looks_fingerprint
    from safeimpute.report.earlier_run import read_earlier_run
    from safeimpute.runtime.looks import earlier_looks, is_second_look

    look = look_of(settings, looks_fingerprint(visits.arrays), out.name)
    places = {folder.resolve().parent: folder for folder in (out, earlier or out)}
    seen = [
        each for folder in places.values() for each in earlier_looks(folder, look.fingerprint, look.target)
    ]
    chosen_after = earlier is not None and read_earlier_run(earlier).chose_otherwise(settings)
    return look, chosen_after or is_second_look(seen, look)
