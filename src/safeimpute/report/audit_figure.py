"""The audit as a picture: achieved share of unacceptable releases and power against the level asked for."""

from pathlib import Path

from safeimpute.evaluation.audit import Audit
from safeimpute.report.figure_style import one_panel, save, styled
from safeimpute.report.figures import level_panel


def draw_audit(report: Audit, folder: Path) -> list[Path]:
    """The achieved FDR should lie on or below the dashed line."""
    with styled():
        figure, axes = one_panel()
        level_panel(axes, report["levels"])
        axes.set(xlabel="FDR level asked for", ylabel="Share of test values")
        axes.legend(loc="upper left")
        return save(figure, folder / "figures", "audit")
