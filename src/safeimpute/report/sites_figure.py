"""The picture of a joined promise: each site's share of unacceptable values below the joint cut-off."""

import json
from pathlib import Path

from safeimpute.machine.files import plain_text
from safeimpute.report.figure_style import in_percent, one_panel, save, styled
from safeimpute.report.palette import ERROR, INK, RELEASED

STANDARD_ERRORS = 1.96


def draw_sites(folder: Path) -> list[Path]:
    """`sites.png` and `sites.svg` beside `sites.json`; nothing where no cut-off kept the level."""
    found = json.loads((folder / "sites.json").read_text(encoding="utf-8"))
    sites = [each for each in found["sites"] if each["share"] is not None]
    if not sites:
        return []
    with styled():
        figure, axes = one_panel(6.4, 1.4 + 0.35 * len(sites))
        for place, each in enumerate(reversed(sites)):
            colour = ERROR if each["alarm"] else RELEASED
            axes.errorbar(each["share"], place, xerr=STANDARD_ERRORS * each["error"], fmt="o", color=colour, capsize=3)
        axes.set_yticks(range(len(sites)), [plain_text(each["site"], 40) for each in reversed(sites)])
        axes.axvline(found["promise"]["level"], color=INK, linestyle="--", linewidth=1)
        axes.set_title("Below the joint cut-off (dashed: the level; orange: alarm)")
        axes.set_xlabel("share of unacceptable values, 95 % interval")
        axes.set_xlim(left=0)
        in_percent(axes, x=True)
        return save(figure, folder, "sites")
