"""Options become a cohort definition, or an error that says what to write."""

from datetime import timedelta
from typing import Any

import pytest

from safeimpute.errors import OptionError
from safeimpute.sources.cohort.definition import define_cohort
from safeimpute.visits.catalogue import load_catalogue

CATALOGUE = load_catalogue()


def test_the_defaults_are_the_published_cohort() -> None:
    definition = define_cohort(CATALOGUE, target="hba1c")
    assert [item.name for item in definition.labs] == ["hba1c", "glucose", "cholesterol"]
    assert [item.lookback for item in definition.inputs] == [timedelta(days=7), timedelta(days=90)]
    assert (definition.anchors, definition.diabetes) == ("target", "any")
    assert definition.targets[0].codes_in("mimic") == (50852, 51631)
    assert set(definition.derivatives_in("mimic")) == {50854, 51613}


def test_the_target_is_never_an_input() -> None:
    definition = define_cohort(CATALOGUE, target="glucose", labs=("glucose", "sodium", "sodium"))
    assert [item.name for item in definition.inputs] == ["sodium"]


def test_the_record_names_codes_units_and_ranges() -> None:
    labs: Any = define_cohort(CATALOGUE, target="hba1c", glucose="serum").resolved("mimic")["labs"]
    assert labs["glucose"]["codes"] == [50931, 52569]
    assert labs["glucose"]["specimens"] == ["serum"]
    assert labs["hba1c"]["units"]["mmol/mol"] == [0.0915, 2.15]
    assert labs["cholesterol"]["lookback_hours"] == 2160


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "a1c"}, "not in the catalogue"),
        ({"labs": ("glucose", "lactose")}, "not in the catalogue"),
        ({"anchors": "all"}, "target, any"),
        ({"diabetes": "type2"}, "any, primary, type1, none"),
        ({"lookback": "glucose"}, "whole number"),
        ({"lookback": "glucose=7"}, "whole number"),
        ({"lookback": "sodium=7d"}, "glucose, cholesterol"),
        ({"lookback": "hba1c=7d"}, "glucose, cholesterol"),
        ({"glucose": "capillary"}, "serum, blood-gas"),
        ({"target": "cholesterol", "labs": ("ldl", "hdl")}, "give the answer away"),
    ],
)
def test_options_not_understood(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        define_cohort(CATALOGUE, **({"target": "hba1c"} | options))


def test_a_users_lab_that_is_a_derivative_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[labs.average_glucose]\ntitle = "estimated average glucose"\nunit = "mg/dL"\nreject = [10, 900]\n'
        'flag = [40, 600]\nlookback = "7d"\ncodes.serum = { mimic = [51613] }\n'
    )
    catalogue = load_catalogue(file)
    with pytest.raises(OptionError, match="give the answer away"):
        define_cohort(catalogue, target="hba1c", labs=("average_glucose",))
    assert define_cohort(catalogue, target="sodium", labs=("average_glucose",)).inputs
