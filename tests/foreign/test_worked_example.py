"""The worked example of docs/other_imputers.md runs as it stands there."""

import re
import warnings
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "other_imputers.md"


def test_the_example_with_scikit_learn_runs(capsys: Any) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that five rounds are few
        exec(compile(code, str(PAGE), "exec"), {})
    said = capsys.readouterr().out
    assert "the expected share that is off by 20 %" in said
    released, missing = map(int, re.findall(r"(\d+) of (\d+) values released", said)[0])
    assert 0 < released < missing
