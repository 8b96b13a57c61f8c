"""The scripts that write the pages of results run on today's result lines; cells survive being packed."""

import json
from pathlib import Path

import numpy as np
import pytest

from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute_lab.benchmark.cells import CellName, Study, open_study, read_cell, save_cell
from safeimpute_lab.evidence.pack_cells import pack, unpack
from safeimpute_lab.evidence.results import METHODS, one_split
from safeimpute_lab.evidence.results_page import write_page


@pytest.mark.full
def test_the_page_is_written_from_a_run_of_today(
    cohort_arrays: VisitArrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safeimpute_lab.evidence.results.load", lambda path: ("simulated, Mayo shape", cohort_arrays))
    monkeypatch.setattr("safeimpute_lab.evidence.results.REPARTITIONS", 5)
    lines = [one_split(Path(), seed, 1.0, "cpu", METHODS) for seed in range(2)]
    page = tmp_path / "evidence.md"
    page.write_text("".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in ("accuracy", "release")))
    write_page([json.loads(json.dumps(line | {"commit": "abc1234"})) for line in lines], page)
    written = page.read_text()
    assert " x 2 | " in written
    assert "Cells of commit abc1234." in written
    assert "90 % confidence" in written
    assert "nan" not in written
    assert all(line["methods"]["paper"]["learned_auc"] > 0 for line in lines)


def test_packed_cells_are_gone_on_with(cohort_arrays: VisitArrays, tmp_path: Path) -> None:
    study = Study("f" * 64, Tolerance(1.2), (0.35,), 0.3, effort=1.0, repartitions=2)
    folder = open_study(tmp_path / "work", study, cohort_arrays)
    save_cell(folder, CellName(0, "mean"), {"error": None, "mae": 1.0}, {"value": np.linspace(0, 1, 500)})
    assert pack(tmp_path / "work", tmp_path / "cells.zip") == 1
    assert unpack(tmp_path / "cells.zip", tmp_path / "elsewhere") == 1
    again = open_study(tmp_path / "elsewhere", study, cohort_arrays)
    cell = read_cell(again, CellName(0, "mean"))
    assert cell is not None
    np.testing.assert_allclose(cell.arrays["value"], np.linspace(0, 1, 500), rtol=1e-6)
