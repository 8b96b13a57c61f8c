import inspect
import json
import pickle
import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_pages import options_page
from typer.testing import CliRunner

from safeimpute.cli import app, main
from safeimpute.cli import run as run_commands
from safeimpute.errors import OptionError
from safeimpute.machine.options import Declared, declared, parameters_of
from safeimpute.settings import BestSettings, GcnSettings, PaperSettings, Settings, make_settings

NEEDED: dict[str, Any] = {"target": "hba1c", "tolerance": 0.5, "fdr": 0.1}
OPTIONS = list(declared(Settings))


def by_path(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """What is written to give one option a value."""
    *tables, name = path
    given: dict[str, Any] = {name: value}
    for table in reversed(tables):
        given = {table: given}
    return NEEDED | given


def found_at(settings: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        settings = getattr(settings, name)
    return settings


def bounds(option: Declared) -> dict[str, float]:
    return option.about.bounds


def odd_values(option: Declared) -> list[Any]:
    """Values an option must refuse: beyond its range, and of another kind."""
    kinds = (option.hint, *get_args(option.hint))
    odd: list[Any] = [{"a": [1]}] if option.name == "tolerance" else [{"a": 1}]
    if bounds(option):
        step = 1 if int in kinds else 1e-6
        beyond = {"ge": -step, "le": step, "gt": 0, "lt": 0}
        odd += [bound + beyond[name] for name, bound in bounds(option).items()]
        odd += [float("nan"), float("inf"), float("-inf"), True, "many", [1]]
        odd += [1.5] if int in kinds else []
    elif option.hint is bool:
        odd += ["maybe", 3, [True]]
    elif get_origin(option.hint) is Literal:
        odd += ["other", 3, ["best"]]
    elif option.name == "tolerance":
        odd += [0, -1, "20%%", float("nan"), float("inf"), "a little", [1, 2]]
    elif option.name == "gammas":
        odd += [[0.5], [float("nan")], 2, ["many"]]
    elif tuple in (get_origin(kind) for kind in kinds):
        odd += [5, [5], True]
    elif option.needed or option.name in ("subject", "time"):
        odd += ["", "  ", 3]
    return odd


ODD = [(option, value) for option in OPTIONS for value in odd_values(option)]


def named(case: Any) -> str | None:
    return ".".join(case.path) if isinstance(case, Declared) else None


@pytest.mark.parametrize(("option", "value"), ODD, ids=named)
def test_an_odd_value_is_refused_by_name(option: Declared, value: Any) -> None:
    with pytest.raises(OptionError) as refused:
        make_settings(**by_path(option.path, value))
    assert option.name in str(refused.value)


@pytest.mark.parametrize("option", [each for each in OPTIONS if bounds(each)], ids=named)
def test_the_ends_of_a_range_are_taken_and_shown(option: Declared) -> None:
    """Every number has a lower and an upper end; what is taken is said in words."""
    assert {"ge", "gt"} & bounds(option).keys()
    assert {"le", "lt"} & bounds(option).keys()
    for end in ("ge", "le"):
        if end in bounds(option) and option.path[:2] != ("paper", "perturbation"):
            end_value = bounds(option)[end]
            assert found_at(make_settings(**by_path(option.path, end_value)), option.path) == end_value


def test_the_weakest_edge_is_not_kept_more_often_than_the_firmest() -> None:
    with pytest.raises(OptionError, match=r"paper\.perturbation: least \(0\.9\) is above most \(0\.2\)"):
        make_settings(**NEEDED, paper={"perturbation": {"least": 0.9, "most": 0.2}})


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(option=st.sampled_from(OPTIONS), value=junk)
def test_any_value_gives_settings_or_an_option_error(option: Declared, value: Any) -> None:
    try:
        settings = make_settings(**by_path(option.path, value))
    except OptionError:
        return
    assert make_settings(**asdict(settings)) == settings


@pytest.mark.parametrize(("option", "value"), ODD, ids=named)
def test_the_command_line_answers_an_odd_setting_in_one_line_with_code_two(
    option: Declared, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(_toml(by_path(option.path, value)))
    monkeypatch.setattr(sys, "argv", ["safeimpute", "run", str(tmp_path / "none.csv"), "--config", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("safeimpute: ")
    assert told.count("\n") == 1
    assert option.name in told


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of every fit that `run` would do."""
    seen: list[Settings] = []
    monkeypatch.setattr(run_commands, "carry_out", lambda table, settings, *_, **__: seen.append(settings))
    return seen


def test_what_is_typed_wins_over_the_file_and_tables_reach_the_presets(tmp_path: Path, fits: list[Settings]) -> None:
    table, file = tmp_path / "visits.csv", tmp_path / "all.toml"
    table.write_text("subject_id,time,hba1c\na,1,6\n")
    written = NEEDED | {"labs": ["hba1c", "a,b"], "past-only": True, "gammas": [1, 2], "random_state": 5}
    file.write_text(_toml({"quiet": True, **written, "best": {"folds": 7}, "paper": {"gcn": {"epochs": 9}}}))
    for typed in (["--fdr", "0.3", "--seed", "0"], ["--claim", "patients,unmeasured"]):
        result = CliRunner().invoke(app, ["run", str(table), "--config", str(file), *typed])
        assert result.exit_code == 0, result.output
    first, second = fits
    assert (first.fdr, first.random_state, first.claim) == (0.3, 0, "unmeasured")
    assert (second.fdr, second.random_state, second.claim) == (0.1, 5, "patients")
    for settings in fits:
        assert settings.labs == ("hba1c", "a,b")
        assert settings.past_only
        assert settings.gammas == (1.0, 2.0)
        assert (settings.best.folds, settings.paper.gcn.epochs) == (7, 9)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fdrr = 0.1", "'fdrr' is no option of any command"),
        ("[worst]\nfolds = 5", "[worst] is no table it may have"),
        ("best = 5", "'best' is a table"),
        ("[best]\nfold = 5", "'best.fold' is no option. Did you mean 'folds'?"),
        ("[paper.grph]\nfallback = true", "'paper.grph' is no option. Did you mean 'graph'?"),
        ("fdr = ", "cannot be read"),
    ],
)
@pytest.mark.parametrize("command", ["run", "evaluate", "audit"])
def test_every_command_that_fits_refuses_what_a_file_may_not_say(
    command: str, text: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(text)
    levels = ["--target", "hba1c", "--tolerance", "1", "--fdr", "0.1"]
    result = CliRunner().invoke(app, [command, str(tmp_path / "none.csv"), *levels, "--config", str(file)])
    assert isinstance(result.exception, OptionError)
    assert told in str(result.exception)


def _toml(settings: dict[str, Any], table: str = "") -> str:
    """Plain values, then tables."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    lines = [f"[{table}]"] if table else []
    lines += [f"{name} = {_toml_value(value)}" for name, value in plain.items()]
    tables = [
        _toml(value, f"{table}.{name}".lstrip(".")) for name, value in settings.items() if isinstance(value, dict)
    ]
    return "\n".join([*lines, *tables]) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return str(value) if isinstance(value, float) else json.dumps(value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fd": 0.1}, "'fd' is no option. Did you mean 'fdr'?"),
        ({"best": {"past_only": True}}, "'best.past_only' is no option."),
        ({"best": {"blend": {"evidence": {"past_only": True}}}}, "'best.blend' is no option."),
        ({"best": {"attention": {"heads": 0}}}, "'best.attention' is no option."),
        ({"paper": {"gcn": {"epoch": 3}}}, "'paper.gcn.epoch' is no option. Did you mean 'epochs'?"),
        ({"paper": {"gcn": 3}}, "paper.gcn holds options (layers, "),
        ({"fdr": None}, "fdr is needed: a number above 0 and below 1."),
        ({"fdr": 1.5}, "fdr takes a number above 0 and below 1; given: 1.5."),
        ({"random_state": -1}, "random_state (--seed) takes a whole number, 0 or more; given: -1."),
        ({"best": BestSettings(folds=1)}, "best.folds takes a whole number from 3 to 10; given: 1."),
    ],
)
def test_a_refusal_names_the_option_and_what_it_takes(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as refused:
        make_settings(**NEEDED | given)
    assert str(refused.value).startswith(told)


def test_what_other_options_decide_is_resolved_in_one_place() -> None:
    assert make_settings(**NEEDED).claim == "unmeasured"
    assert make_settings(**NEEDED, preset="paper").claim == "visits"
    assert make_settings(**NEEDED, claim=None, past_only=None).claim == "unmeasured"
    for alias in ("patients,unmeasured", "unmeasured, patients"):
        assert make_settings(**NEEDED, claim=alias).claim == "patients"
    assert make_settings(**NEEDED, claim="later").past_only
    assert not make_settings(**NEEDED, claim="patients").past_only


@pytest.mark.parametrize("more", [{"claim": "unmeasured"}, {"claim": "later"}, {"past_only": True}])
def test_the_preset_paper_makes_the_papers_claim_only(more: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="needs the preset 'best'"):
        make_settings(**NEEDED, preset="paper", **more)


def test_text_and_lists_are_read_alike() -> None:
    typed = make_settings(
        target="hba1c", tolerance="0.5", fdr="0.1", labs="a, b", gammas="1,2", random_state="7", exclude=["c,d"]
    )
    told = make_settings(**NEEDED, labs=["a", "b"], gammas=(1, 2), random_state=7, exclude=("c,d",))
    assert typed == told
    assert told.labs == ("a", "b")
    assert told.exclude == ("c,d",)
    assert make_settings(**NEEDED | {"tolerance": "10% or 6"}).tolerance == "10% or 6"
    assert make_settings(**NEEDED).allowed_error.absolute == 0.5
    graph = make_settings(**NEEDED, paper={"graph": {"max_neighbors": "none", "log_labs": "ldl"}}).paper.graph
    assert graph.max_neighbors is None
    assert graph.log_labs == ("ldl",)


def test_settings_survive_pickle_and_json() -> None:
    settings = make_settings(**NEEDED, claim="later", labs=("a",), best=BestSettings(folds=7), unit="%")
    settings = replace(settings, paper=PaperSettings(gcn=GcnSettings(epochs=3)))
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert make_settings(**json.loads(json.dumps(asdict(settings)))) == settings


def test_parameters_are_those_of_the_settings() -> None:
    signature = inspect.Signature(parameters_of(Settings))
    assert {each.kind for each in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert signature.parameters["fdr"].default is inspect.Parameter.empty
    assert signature.parameters["confidence"].default == 0.9
    assert signature.parameters["claim"].default is None
    assert signature.parameters["best"].default == BestSettings()
    assert signature.parameters["random_state"].annotation is int


def test_every_option_has_one_sentence_and_every_flag_repeats_it() -> None:
    shown = " ".join(CliRunner().invoke(app, ["run", "--help"], terminal_width=200).output.split())
    for option in OPTIONS:
        assert option.about.means[0].isupper()
        assert option.about.means.endswith(".")
        if len(option.path) == 1:
            assert f"{option.flag} " in shown
            assert option.about.means[:-1] in shown
            assert option.hint is bool or option.default_in_words in shown


def test_the_page_of_options_has_every_option_and_its_example_is_read() -> None:
    page = options_page()
    assert [option.path for option in OPTIONS if f"`{option.path[-1]}`" not in page] == []
    example = page.split("```toml\n")[1].split("```")[0]
    assert make_settings(**tomllib.loads(example)).paper.graph.max_neighbors is None


def test_settings_and_the_command_line_load_nothing_heavy() -> None:
    code = (
        "import sys, safeimpute.settings, safeimpute.cli; "
        "print(sorted({'torch', 'lightgbm', 'polars', 'scipy', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[]\n"
