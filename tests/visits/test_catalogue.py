"""The catalogue of labs: what it takes, and every fact that can be computed or looked up."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reference_pages import catalogue_page

from safeimpute.errors import OptionError
from safeimpute.visits.catalogue import Catalogue, facts, load_catalogue, parse_lookback, unverified

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
    assert in_unit(catalogue, "hba1c", 48, "mmol/mol") == pytest.approx(6.54, abs=0.01)  # the diagnostic threshold
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
    [("hba1c", (3, 20), (4, 15)), ("glucose", (10, 2000), (40, 1000)), ("cholesterol", (20, 1000), (50, 600))],
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


WEIGHTS = {"C": 12.011, "H": 1.008, "N": 14.007, "O": 15.999, "Ca": 40.078, "Mg": 24.305}
FORMULAS = {
    "glucose": "C6H12O6",
    "cholesterol": "C27H46O",
    "hdl": "C27H46O",
    "ldl": "C27H46O",
    "ldl_direct": "C27H46O",
    "triglycerides": "C57H104O6",  # as triolein
    "creatinine": "C4H7N3O",
    "urea_nitrogen": "N2",  # the nitrogen of one urea
    "uric_acid": "C5H4N4O3",
    "calcium": "Ca",
    "magnesium": "Mg",
    "bilirubin": "C33H36N4O6",
}
# Codes taken from the list of clinical facts, which the tables below do not hold.
LISTED: dict[str, set[Any]] = {
    "mimic": {51631, 52569, 52027, 50854, 51613},
    "loinc": {"17856-6", "59261-8", "41995-2", "13457-7"},
    "omop": {3005673},
}


def weight(formula: str) -> float:
    parts = re.findall(r"([A-Z][a-z]?)(\d*)", formula)
    return sum(WEIGHTS[element] * int(number or 1) for element, number in parts)


@pytest.mark.parametrize("lab", FORMULAS)
def test_molar_factors_follow_from_atomic_weights(lab: str, catalogue: Catalogue) -> None:
    units = catalogue.lab(lab).units
    factors = {"mmol/L": weight(FORMULAS[lab]) / 10, "umol/L": weight(FORMULAS[lab]) / 1e4}
    found = {unit: units[unit].times for unit in factors if unit in units}
    assert found
    for unit, times in found.items():
        assert times == pytest.approx(factors[unit], rel=1e-3), unit


def test_every_unit_that_changes_a_value_was_checked_here(catalogue: Catalogue) -> None:
    other = {("hba1c", "mmol/mol"), ("temperature", "[degF]")}
    powers_of_ten = {0.001, 0.1, 100}
    body = {0.45359237, 2.54}  # kilograms of a pound, centimetres of an inch: exact by definition
    for lab in catalogue.labs.values():
        for unit, rule in lab.units.items():
            molar = lab.name in FORMULAS and unit in ("mmol/L", "umol/L", "µmol/L")
            if rule.changes:
                assert molar or rule.times in powers_of_ten | body or (lab.name, unit) in other, (lab.name, unit)


def test_what_is_called_verified_is_a_fact_of_its_lab(catalogue: Catalogue) -> None:
    for lab in catalogue.labs.values():
        assert set(lab.verified) <= {fact.name for fact in facts(lab, catalogue)}, lab.name
        assert len(set(lab.verified)) == len(lab.verified), lab.name
    assert all(fact.source for lab in catalogue.labs.values() for fact in facts(lab, catalogue))


def test_a_users_own_lab_is_not_verified(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[labs.crp]\ntitle = "CRP"\nunit = "mg/L"\nreject = [0, 9]\nflag = [0, 8]\nlookback = "7d"\n'
        'codes.serum = { loinc = ["1988-5"] }\nallowable_error = { percent = 30, source = "ours" }\n'
    )
    found = load_catalogue(own)
    assert {fact.name for fact in unverified(found) if fact.lab == "crp"} == {
        *("loinc 1988-5", "reject", "flag", "allowable_error")
    }


def test_the_page_is_made_from_the_catalogue(catalogue: Catalogue) -> None:
    told = catalogue_page(catalogue)
    assert all(f"| {lab} |" in told for lab in catalogue.labs)
    for fact in unverified(catalogue):
        assert f"| {fact.lab} | {fact.name.replace('_', ' ')} |" in told


@pytest.mark.data
def test_verified_codes_stand_in_public_tables(catalogue: Catalogue, clinical_data: Path) -> None:
    items = pl.read_csv(clinical_data / "mimic3_demo" / "D_LABITEMS.csv.gz", infer_schema=False)
    concepts = pl.read_csv(clinical_data / "omop_synthea27nj" / "concept.csv.gz", infer_schema=False)
    loinc_of_item = dict(items.select(pl.col("ITEMID").cast(pl.Int64), "LOINC_CODE").iter_rows())
    named = concepts.filter(pl.col("vocabulary_id") == "LOINC")
    loinc_of_concept = dict(named.select(pl.col("concept_id").cast(pl.Int64), "concept_code").iter_rows())
    known = {*loinc_of_item.values(), *loinc_of_concept.values()} | LISTED["loinc"]
    for lab in catalogue.labs.values():
        own = {*lab.codes_in("loinc"), *lab.derivatives.loinc}
        for fact in lab.verified:
            kind, _, code = fact.partition(" ")
            if kind == "loinc":
                assert code in known, fact
            elif kind == "omop" and int(code) not in LISTED["omop"]:
                assert loinc_of_concept[int(code)] in own, fact
            elif kind == "mimic" and int(code) not in LISTED["mimic"] and lab.name != "magnesium":
                assert loinc_of_item[int(code)] in own, fact
    assert loinc_of_item[50960] == "2601-3"  # magnesium by moles in MIMIC's column, by mass in its values


@pytest.mark.data
def test_unit_concepts_are_the_vocabularys(catalogue: Catalogue, clinical_data: Path) -> None:
    concepts = pl.read_csv(clinical_data / "omop_synthea27nj" / "concept.csv.gz", infer_schema=False)
    ucum = dict(
        concepts.filter(pl.col("vocabulary_id") == "UCUM")
        .select(pl.col("concept_id").cast(pl.Int64), "concept_code")
        .iter_rows()
    )
    spelt = {"10*-3.eq/L": "mEq/L", "[U]/L": "U/L", "[iU]/L": "IU/L", "10*3/mm3": "10*3/uL", "[degC]": "Cel"}
    spelt |= {"[lb_us]": "lb", "[in_us]": "in"}
    for concept, unit in catalogue.omop_units.items():
        assert spelt.get(ucum[concept], ucum[concept]) == unit, concept


@pytest.mark.data
def test_type_1_diabetes_is_what_the_dictionary_of_diagnoses_calls_so(
    catalogue: Catalogue, clinical_data: Path
) -> None:
    known = pl.read_csv(clinical_data / "mimic3_demo" / "D_ICD_DIAGNOSES.csv.gz", infer_schema=False)
    named = known.rename(str.lower).filter(
        pl.col("icd9_code").str.starts_with("250") & pl.col("long_title").str.contains("type I ", literal=True)
    )
    assert set(named["icd9_code"]) == set(catalogue.diabetes["type1"].icd9)
