"""What the catalogue calls verified is: against atomic weights, and against public tables where they are at hand."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from safeimpute.cli.catalogue_page import page
from safeimpute.errors import OptionError
from safeimpute.records.catalogue import Catalogue, load_catalogue
from safeimpute.records.catalogue_facts import allowable_error, facts, unverified
from safeimpute.tolerance import parse_tolerance

DOCS = Path(__file__).parents[2] / "docs"
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


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


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
                assert molar or rule.times in powers_of_ten | body or (lab.name, unit) in other, (
                    lab.name,
                    unit,
                )


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
    assert allowable_error("crp", catalogue=found) == ("30%", "ours", False)


def test_the_page_is_made_from_the_catalogue(catalogue: Catalogue) -> None:
    told = (DOCS / "catalogue.md").read_text(encoding="utf-8")
    assert told == page(catalogue), "run: python -m safeimpute.cli.catalogue_page > docs/catalogue.md"
    for fact in unverified(catalogue):
        assert f"| {fact.lab} | {fact.name.replace('_', ' ')} |" in told


@pytest.mark.parametrize(
    ("lab", "text", "verified"),
    [
        ("glucose", "10% or 6", True),
        ("cholesterol", "10%", True),
        ("potassium", "0.5", True),
        ("hba1c", "8%", False),
        ("platelets", "25%", False),
    ],
)
def test_allowable_errors_are_tolerances(lab: str, text: str, verified: bool) -> None:
    found = allowable_error(lab)
    assert (found.tolerance, found.verified) == (text, verified)
    assert found.source
    parse_tolerance(found.tolerance)


def test_an_allowable_error_in_another_unit() -> None:
    assert allowable_error("glucose", "mmol/L").tolerance == "10% or 0.333037"
    assert allowable_error("potassium", "mEq/L").tolerance == "0.5"
    with pytest.raises(OptionError, match="known in mg/dL, not in 'stone'"):
        allowable_error("glucose", "stone")
    with pytest.raises(OptionError, match="no regulator limits the error of 'ldl'"):
        allowable_error("ldl")
    with pytest.raises(OptionError, match="not in the catalogue"):
        allowable_error("nonsense")


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
        pl.col("icd9_code").str.starts_with("250")
        & pl.col("long_title").str.contains("type I ", literal=True)
    )
    assert set(named["icd9_code"]) == set(catalogue.diabetes["type1"].icd9)
