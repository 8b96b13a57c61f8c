"""The catalogue holds the clinical facts it should, and refuses a user's file that does not fit."""

from datetime import timedelta
from pathlib import Path

import pytest

from safeimpute.errors import OptionError
from safeimpute.records.catalogue import Catalogue, load_catalogue, parse_lookback

OWN_LAB = """
[labs.crp]
title = "C-reactive protein"
unit = "mg/L"
units = { "mg/dL" = { times = 10 } }
reject = [0, 1000]
flag = [0, 500]
lookback = "12h"
codes.serum = { mimic = [50889], loinc = ["1988-5"], omop = [3020460] }
"""


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def in_unit(catalogue: Catalogue, lab: str, value: float, unit: str) -> float:
    rule = catalogue.lab(lab).conversions[unit.lower()]
    return value * rule.times + rule.plus


@pytest.mark.parametrize(
    ("lab", "mimic", "loinc", "omop"),
    [
        ("hba1c", {50852, 51631}, {"4548-4", "17856-6", "59261-8"}, {3004410, 3005673}),
        ("glucose", {50931, 52569, 50809, 52027}, {"2345-7", "2339-0"}, {3004501, 3000483}),
        ("cholesterol", {50907}, {"2093-3"}, {3027114}),
        ("hdl", {50904}, {"2085-9"}, {3007070}),
        ("ldl", {50905}, {"13457-7", "2090-9"}, {3028288}),
    ],
)
def test_codes_of_the_published_labs(
    catalogue: Catalogue, lab: str, mimic: set[int], loinc: set[str], omop: set[int]
) -> None:
    found = catalogue.lab(lab)
    assert set(found.codes_in("mimic")) == mimic
    assert set(found.codes_in("loinc")) == loinc
    assert set(found.codes_in("omop")) == omop
    assert set(found.codes_in("meds")) == {f"LAB//{item}" for item in mimic}


def test_derivatives_of_hba1c_are_named_and_are_no_lab(catalogue: Catalogue) -> None:
    derived = catalogue.lab("hba1c").derivatives
    assert {50854, 51613} <= set(derived.mimic)
    assert {"41995-2"} <= set(derived.loinc)
    every_code = {code for lab in catalogue.labs.values() for code in lab.codes_in("mimic")}
    assert not every_code & set(derived.mimic)


def test_glucose_of_one_specimen(catalogue: Catalogue) -> None:
    assert catalogue.lab("glucose").codes_in("mimic", ("serum",)) == (50931, 52569)
    assert catalogue.lab("glucose").codes_in("omop", ("blood-gas",)) == (3000483,)


def test_conversions_follow_the_master_equation_and_molar_masses(catalogue: Catalogue) -> None:
    assert in_unit(catalogue, "hba1c", 48, "mmol/mol") == pytest.approx(
        6.54, abs=0.01
    )  # the diagnostic threshold
    assert in_unit(catalogue, "hba1c", 48, "mmol/mol") == 48 * 0.0915 + 2.15
    assert in_unit(catalogue, "glucose", 7.0, "mmol/L") == pytest.approx(126.1, abs=0.05)
    assert in_unit(catalogue, "cholesterol", 5.0, "mmol/L") == pytest.approx(193.4, abs=0.1)
    assert in_unit(catalogue, "creatinine", 88.4, "umol/L") == pytest.approx(1.0, abs=0.001)
    assert in_unit(catalogue, "bilirubin", 17.1, "umol/L") == pytest.approx(1.0, abs=0.001)
    assert in_unit(catalogue, "calcium", 2.5, "mmol/L") == pytest.approx(10.0, abs=0.05)
    assert in_unit(catalogue, "triglycerides", 1.7, "mmol/L") == pytest.approx(150.6, abs=0.1)
    assert in_unit(catalogue, "urea_nitrogen", 5.0, "mmol/L") == pytest.approx(14.0, abs=0.02)
    assert in_unit(catalogue, "uric_acid", 416, "umol/L") == pytest.approx(7.0, abs=0.02)
    assert in_unit(catalogue, "magnesium", 0.85, "mmol/L") == pytest.approx(2.07, abs=0.01)
    assert in_unit(catalogue, "hematocrit", 0.42, "L/L") == 42


@pytest.mark.parametrize(
    ("lab", "reject", "flag"),
    [
        ("hba1c", (3, 20), (4, 15)),
        ("glucose", (10, 2000), (40, 1000)),
        ("cholesterol", (20, 1000), (50, 600)),
    ],
)
def test_ranges_of_the_published_labs(
    catalogue: Catalogue, lab: str, reject: tuple[float, float], flag: tuple[float, float]
) -> None:
    found = catalogue.lab(lab)
    assert (found.reject.low, found.reject.high) == reject
    assert (found.flag.low, found.flag.high) == flag


@pytest.mark.parametrize(
    ("lab", "text"),
    [
        ("glucose", "6 mg/dL or 10 %"),
        ("cholesterol", "10 %"),
        ("triglycerides", "25 %"),
        ("creatinine", "0.3 mg/dL or 15 %"),
        ("albumin", "10 %"),
        ("bilirubin", "0.4 mg/dL or 20 %"),
        ("potassium", "0.5 mmol/L"),
        ("sodium", "4 mmol/L"),
        ("urea_nitrogen", "2 mg/dL or 9 %"),
        ("uric_acid", "17 %"),
        ("calcium", "1 mg/dL"),
        ("total_protein", "10 %"),
    ],
)
def test_allowable_errors_of_clia(catalogue: Catalogue, lab: str, text: str) -> None:
    found = catalogue.lab(lab)
    assert found.allowable_error is not None
    assert found.allowable_error.describe(found.unit) == text
    assert "CLIA" in found.allowable_error.source


def test_diabetes_codes(catalogue: Catalogue) -> None:
    assert catalogue.diabetes["any"].icd9 == ("249", "250")
    assert set(catalogue.diabetes["any"].icd10) >= {"E08", "E09", "E10", "E11", "E13"}
    assert catalogue.diabetes["primary"].icd9 == ("250",)
    assert catalogue.diabetes["primary"].icd10 == ("E10", "E11", "E13")
    assert 201820 in catalogue.diabetes["any"].omop


@pytest.mark.parametrize(("text", "hours"), [("7d", 168), ("90d", 2160), ("12h", 12), ("0d", 0)])
def test_lookbacks(text: str, hours: int) -> None:
    assert parse_lookback(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["7", "d", "7w", "-1d", "1.5d", ""])
def test_lookbacks_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        parse_lookback(text)


def test_a_user_adds_a_lab(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN_LAB)
    catalogue = load_catalogue(file)
    assert catalogue.lab("crp").conversions["mg/dl"].times == 10
    assert "hba1c" in catalogue.labs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("labs.crp", "labs.hba1c"), "already in the catalogue"),
        (("50889", "50852"), "stands for both"),
        (("flag = [0, 500]", "flag = [0, 5000]"), "inside the reject range"),
        (("reject = [0, 1000]", "reject = [10, 1]"), "below the second"),
        (('"12h"', '"a while"'), "whole number"),
        (("labs.crp", "labs.C-RP"), "lower-case"),
        (("labs.crp", "labs.crp__known"), "lower-case"),
        (("title", "titel"), "titel"),
        (("times = 10", "times = 0"), "greater than 0"),
        (("[labs.crp]", "[tests.crp]"), "labs.NAME"),
        (("[labs.crp]", "[labs.crp"), "not valid TOML"),
    ],
)
def test_a_users_file_that_does_not_fit(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN_LAB.replace(*change))
    with pytest.raises(OptionError, match=message):
        load_catalogue(file)


def test_an_absent_file_and_an_unknown_lab(tmp_path: Path, catalogue: Catalogue) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        load_catalogue(tmp_path / "absent.toml")
    with pytest.raises(OptionError, match="Did you mean 'glucose'"):
        catalogue.lab("glucos")
