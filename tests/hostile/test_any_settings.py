"""Settings, flags and configuration files of any content: taken, or refused by the option's name with exit code 2."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from helpers.fuzzing import fuzzed
from safeimpute.cli import app
from safeimpute.errors import OptionError, SafeImputeError
from safeimpute.machine.options import Declared, TableFormat, declared, make_table_format
from safeimpute.settings import Settings, make_settings
from safeimpute.tolerance import parse_tolerance

pytestmark = pytest.mark.surface("settings")
GIVEN = {"target": "hba1c", "tolerance": 0.5, "fdr": 0.1}
BOUNDED = [each for each in declared(Settings) if each.about.bounds]
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["auto", "none", "nan", "inf", "-1", "1e400", "10% or", "%", "0%", "١", "best", "visits", "\0", "a,,b"]
    ),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


def placed(option: Declared, value: Any) -> dict[str, Any]:
    """The settings with one option changed, inside the tables where it belongs."""
    for part in reversed(option.path):
        value = {part: value}
    return {**GIVEN, **value}


@pytest.mark.parametrize("option", BOUNDED, ids=lambda each: ".".join(each.path))
def test_every_number_out_of_its_range_is_refused_by_name(option: Declared) -> None:
    bounds = option.about.bounds
    outside: list[Any] = [math.nan, math.inf, -math.inf, True, "many", 1e400, "nan"]
    outside += [bounds[name] - 1 for name in ("ge",) if name in bounds] + [
        bounds[n] for n in ("gt", "lt") if n in bounds
    ]
    outside += [bounds["le"] + 1] if "le" in bounds else []
    for value in outside:
        with pytest.raises(OptionError, match=option.name):
            make_settings(**placed(option, value))


def check_any_settings(place: float, value: Any, other: Any) -> None:
    """Any option given anything: settings that are finite and can be made again, or an error made on purpose."""
    options = list(declared(Settings))
    option = options[int(place * (len(options) - 1))]
    try:
        made = make_settings(**placed(option, value) | {"unit": other if isinstance(other, str) else None})
    except OptionError:
        return
    assert make_settings(**asdict(made)) == made
    assert all(math.isfinite(each) for each in numbers_in(asdict(made)))


def numbers_in(content: Any) -> list[float]:
    if isinstance(content, dict):
        return [number for each in content.values() for number in numbers_in(each)]
    if isinstance(content, tuple | list):
        return [number for each in content for number in numbers_in(each)]
    return [content] if isinstance(content, float) else []


test_any_settings, test_any_settings_at_length = fuzzed(
    check_any_settings, st.floats(0, 1), ANYTHING, ANYTHING, few=200, many=6000
)


def check_any_tolerance(given: Any) -> None:
    try:
        tolerance = parse_tolerance(given)
    except OptionError:
        return
    assert math.isfinite(tolerance.absolute)
    assert math.isfinite(tolerance.share)
    assert max(tolerance.absolute, tolerance.share) > 0


FORMAT_VALUES = st.one_of(
    st.none(), st.text(max_size=6), st.sampled_from([",", ".", ";", "tab", "\t", "DD.MM.YYYY", "a=b"])
)


def check_any_format(date_format: Any, decimal: Any, separator: Any, unit_of: Any) -> None:
    try:
        made = make_table_format(date_format=date_format, decimal=decimal, separator=separator, unit_of=unit_of)
    except OptionError:
        return
    assert len(made.separator) == 1
    assert made.separator != made.decimal
    assert make_table_format(**asdict(made)) == made
    assert isinstance(made, TableFormat)


test_any_format, test_any_format_at_length = fuzzed(
    check_any_format, FORMAT_VALUES, FORMAT_VALUES, FORMAT_VALUES, FORMAT_VALUES, few=100, many=3000
)

FLAGS = sorted({each.flag for each in declared(Settings) if len(each.path) == 1 and each.hint is not bool})
FLAGS += [each.flag for each in declared(TableFormat)] + [
    "--threads",
    "--memory",
    "--config",
    "--columns",
    "--out",
    "--sign",
]


def check_any_flags(flags: list[tuple[str, str]], toml: str | None) -> None:
    """Any flags with any text before a table that is not there: one line, exit code 2, no trace."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        told = ["run", str(Path(folder) / "none.csv"), "--out", str(Path(folder) / "out"), "--quiet"]
        told += [part for flag, value in flags for part in (flag, value)]
        if toml is not None:
            (Path(folder) / "c.toml").write_text(toml, encoding="utf-8", errors="replace")
            told += ["--config", str(Path(folder) / "c.toml")]
        try:
            code = CliRunner().invoke(app, told, catch_exceptions=False).exit_code
        except SafeImputeError as error:
            code = error.exit_code
        except OSError:
            code = 2  # the entry point says so in one line
        assert code == 2
        assert {path.name for path in Path(folder).iterdir()} <= {"c.toml"}


TEXT = st.text(max_size=8).filter(lambda text: "\0" not in text)
TOML = st.one_of(
    st.none(),
    TEXT,
    st.sampled_from(
        ["threads = -1", "memory = nan", "fdr = inf", "[best]\nfolds = 1e9", "seed = true", "x = 1", "[paper]\ngcn = 3"]
    ),
)


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        monkeypatch.setenv(name, "1")  # --threads sets them for good
    monkeypatch.setenv("SAFEIMPUTE_MEMORY_GIB", "")


test_any_flags, test_any_flags_at_length = fuzzed(
    check_any_flags, st.lists(st.tuples(st.sampled_from(FLAGS), TEXT), max_size=4), TOML, few=40, many=1000
)
test_any_tolerance, test_any_tolerance_at_length = fuzzed(check_any_tolerance, ANYTHING, few=100, many=3000)
