"""Units: a lab in another unit, wholly or in some rows, is refused with the conversion that mends it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scored_cohorts import saved_model
from safeimpute import SafeImputer
from safeimpute.errors import OptionError, VisitsError
from safeimpute.model.scorer import Scorer
from safeimpute.visits.arrays import FloatArray
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.examples import simulate
from safeimpute.visits.tables import read_visits
from safeimpute.visits.units import require_units

pytestmark = pytest.mark.surface("units")
# Typical results of a mixed clinic: centre and spread of the logarithm, in the catalogue's unit.
USUAL = {
    "hba1c": (7.2, 0.2),
    "glucose": (130, 0.35),
    "cholesterol": (190, 0.25),
    "hdl": (48, 0.3),
    "ldl": (105, 0.35),
    "triglycerides": (140, 0.5),
    "creatinine": (1.0, 0.5),
    "uric_acid": (5.5, 0.3),
    "calcium": (9.3, 0.06),
    "albumin": (4.0, 0.15),
    "total_protein": (7.0, 0.1),
    "hemoglobin": (13, 0.15),
    "hematocrit": (39, 0.13),
}
OTHER = {"hba1c": "mmol/mol", "creatinine": "umol/L", "uric_acid": "umol/L", "albumin": "g/L"}
OTHER |= {"total_protein": "g/L", "hemoglobin": "g/L", "hematocrit": "L/L"}


def results(lab: str, rows: int = 400, seed: int = 3) -> FloatArray:
    centre, spread = USUAL[lab]
    return centre * np.exp(spread * np.random.default_rng(seed).normal(size=rows))


def in_other_unit(lab: str, values: FloatArray) -> FloatArray:
    rule = load_catalogue().labs[lab].units[OTHER.get(lab, "mmol/L")]
    return (values - rule.plus) / rule.times


@pytest.mark.parametrize("lab", USUAL)
def test_usual_results_pass(lab: str) -> None:
    for seed in range(20):
        require_units({lab: results(lab, 400, seed)}, {})


@pytest.mark.parametrize("lab", USUAL)
@pytest.mark.parametrize("share", [1.0, 0.7, 0.3, 0.05])
def test_another_unit_is_found_in_all_rows_or_in_some(lab: str, share: float) -> None:
    """30 % of HbA1c in mmol/mol were once fitted as they stood."""
    values = results(lab)
    foreign = np.random.default_rng(1).random(len(values)) < share
    values[foreign] = in_other_unit(lab, values[foreign])
    with pytest.raises(VisitsError, match=f"'{lab}' should be in") as caught:
        require_units({lab: values}, {})
    unit = OTHER.get(lab, "mmol/L")
    assert unit in str(caught.value)
    assert (f"--unit-of {lab}={unit}" in str(caught.value)) == (share > 0.5)


@settings(max_examples=60)
@given(
    st.sampled_from(["bilirubin", "triglycerides", "creatinine", "glucose"]),
    st.integers(0, 10_000),
    st.floats(0.0, 1.0),
)
def test_the_very_sick_are_no_other_unit(lab: str, seed: int, share: float) -> None:
    """Long tails (dialysis, jaundice, hypoglycaemia) reach far without a gap, and pass."""
    rng = np.random.default_rng(seed)
    centre, spread, far = {
        "bilirubin": (0.8, 0.6, 2.3),
        "triglycerides": (140, 0.5, 1.2),
        "creatinine": (1.0, 0.4, 2.0),
        "glucose": (130, 0.35, -1.2),
    }[lab]
    sick = rng.random(500) < share
    values = centre * np.exp(spread * rng.normal(size=500) + sick * far * rng.random(500))
    require_units({lab: values}, {})


def test_single_faults_are_no_other_unit() -> None:
    values = results("glucose", 2000)
    values[:4] = 5.5
    require_units({"glucose": values}, {})


def test_a_unit_that_was_named_is_the_one_that_counts() -> None:
    values = in_other_unit("hba1c", results("hba1c"))
    require_units({"hba1c": values}, {"hba1c": "mmol/mol"})
    mixed = values.copy()
    mixed[:100] = results("hba1c")[:100]
    with pytest.raises(VisitsError, match=r"should be in mmol/mol.*values in % would"):
        require_units({"hba1c": mixed}, {"hba1c": "mmol/mol"})


def test_unknown_labs_and_empty_columns_pass() -> None:
    require_units({"glucose": np.full(9, np.nan), "xyz": np.arange(9.0), "hba1c": np.empty(0)}, {})


def test_a_run_refuses_a_mixture_before_it_fits() -> None:
    visits = simulate("mimic4", np.random.default_rng(5), patients=120).visits
    foreign = pl.int_range(pl.len()) % 3 == 0
    for lab, back in (("hba1c", (pl.col("hba1c") - 2.15) / 0.0915), ("glucose", pl.col("glucose") / 18.016)):
        mixed = visits.with_columns(pl.when(foreign).then(back).otherwise(pl.col(lab)).alias(lab))
        with pytest.raises(VisitsError, match=f"'{lab}'.*Two units are mixed"):
            SafeImputer(target="hba1c", tolerance=0.5, fdr=0.2).fit(mixed)


def test_the_flag_converts_exactly_as_the_catalogue_says(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("subject_id,time,hba1c,glucose\nP1,0,48,5.5\nP1,90,,\n")
    table = read_visits(path, unit_of={"hba1c": "mmol/mol", "glucose": " MMOL/L "})
    assert table["hba1c"].to_list() == [48 * 0.0915 + 2.15, None]
    assert table["glucose"].to_list() == [5.5 * 18.016, None]


@pytest.mark.parametrize(
    ("unit_of", "error", "words"),
    [
        ({"glucose": "furlong"}, OptionError, "no unit of 'glucose'"),
        ({"unheard": "mmol/L"}, OptionError, "not in the catalogue"),
        ({"ldl": "mmol/L"}, VisitsError, "'ldl', named in --unit-of"),
    ],
)
def test_a_conversion_that_cannot_be_made(
    tmp_path: Path, unit_of: dict[str, str], error: type[Exception], words: str
) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("subject_id,time,hba1c,glucose\nP1,0,48,5.5\n")
    with pytest.raises(error, match=words):
        read_visits(path, unit_of=unit_of)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    return Scorer.load(saved_model(tmp_path_factory.mktemp("units")))


@pytest.mark.parametrize("rows", [1, 3, 300])
@pytest.mark.parametrize(
    ("lab", "back"), [("glucose", lambda value: value / 18.016), ("hba1c", lambda value: (value - 2.15) / 0.0915)]
)
def test_scoring_checks_units_as_a_run_does(
    scorer: Scorer, lab: str, back: Callable[[pl.Expr], pl.Expr], rows: int
) -> None:
    visits = simulate("mimic4", np.random.default_rng(8), patients=90).visits
    visits = visits.filter(pl.col(lab).is_not_null())[:rows]
    scorer.score(visits)
    with pytest.raises(VisitsError, match=f"'{lab}' should be in"):
        scorer.score(visits.with_columns(back(pl.col(lab))))
