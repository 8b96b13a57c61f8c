"""Every example runs as documented and draws the figure that the site shows."""

import os
import re
from pathlib import Path

import pytest
from run_examples import EXAMPLES, Example, missing_data, run_example

ROOT = Path(__file__).parents[1]
LONGEST = 120  # processor seconds: what an example takes on one core that does nothing else


def test_every_script_is_an_example_and_stands_on_the_page() -> None:
    page = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    scripts = {str(path.relative_to(ROOT / "examples")) for path in (ROOT / "examples").rglob("*.py")}
    assert scripts - {"looks.py"} == {example.script for example in EXAMPLES.values()}
    assert len(EXAMPLES) == 9
    for example in EXAMPLES.values():
        assert f'--8<-- "examples/{example.script}"' in page
        if example.figure:
            assert f"images/examples/{example.figure}" in page
            assert (ROOT / "docs/images/examples" / example.figure).stat().st_size < 150_000


def test_an_example_without_its_data_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SAFEIMPUTE_DATA", raising=False)
    assert missing_data(Example("x.py", data="mimic4_demo")) == "SAFEIMPUTE_DATA names no folder"
    monkeypatch.setenv("SAFEIMPUTE_DATA", str(tmp_path))
    assert missing_data(Example("x.py", data="mimic4_demo")) == "SAFEIMPUTE_DATA has no mimic4_demo"
    assert missing_data(Example("x.py")) is None


SAID = {
    "own_csv": r"the expected share that is off by 20 % of the true value or more is at most 20 %",
    "mimic4": r"Bound\(values=\d+",
    "omop": r"274 rows of provenance",
    "nightly": r"Released values by month",
    "groups": r"also within each group by history",
    "decisions": r"lost to errors, each counted by its cost",
    "draws_pooling": r"20 draws, pooled +\d",
    "r": r"log cholesterol, pooled over 20 tables|Rscript is not on the path",
    "is_my_promise_valid": r"within level \+ 3 SE",
}


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    if why := missing_data(EXAMPLES[name]):
        pytest.skip(why)
    before = os.times()
    done = run_example(name, tmp_path / name, tmp_path / "figures")
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(SAID[name], done.stdout)
    assert "Warning" not in done.stderr
    figure = EXAMPLES[name].figure
    drawn = tmp_path / "figures" / figure if figure else tmp_path / name / "monitor.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < LONGEST
