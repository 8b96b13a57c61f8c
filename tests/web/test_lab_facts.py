"""What the page says beside a lab: its name, its limits and ranges, always in the run's own unit."""

import pytest

from safeimpute.visits.catalogue import load_catalogue
from safeimpute.web.patients import lab_facts


@pytest.mark.parametrize(
    ("column", "title"),
    [
        ("cholesterol", "Total cholesterol"),
        ("hdl", "HDL cholesterol"),
        ("ldl", "LDL cholesterol, calculated"),
        ("hba1c", "Haemoglobin A1c"),
        ("pro_time", "Pro time"),
        ("NT-proBNP", "NT-proBNP"),
        ("_", "_"),
    ],
)
def test_labs_are_named_as_people_write_them(column: str, title: str) -> None:
    assert lab_facts(column, None)["title"] == title


def test_limits_stand_with_what_begins_there() -> None:
    told = lab_facts("cholesterol", "mg/dL")
    assert told["limits"] == [{"value": 200, "name": "borderline high"}, {"value": 240, "name": "high"}]
    assert told["limits_source"] == "NCEP ATP III"


def test_limits_and_ranges_follow_the_unit() -> None:
    in_molar = [limit["value"] for limit in lab_facts("cholesterol", "mmol/L")["limits"]]
    assert in_molar == pytest.approx([200 / 38.67, 240 / 38.67], rel=1e-3)
    shifted = [limit["value"] for limit in lab_facts("hba1c", "mmol/mol")["limits"]]
    assert shifted == pytest.approx([38.8, 47.5, 63.9], abs=0.1)
    usual = lab_facts("albumin", "g/L")["usual"]
    assert usual is not None
    assert (usual["low"], usual["high"], usual["verified"]) == (35, 55, True)


@pytest.mark.parametrize("unit", [None, "U/mL", "stones"])
def test_without_a_known_unit_nothing_is_drawn(unit: str | None) -> None:
    for lab in ("ast", "cholesterol"):
        told = lab_facts(lab, unit)
        assert told["limits"] == []
        assert told["usual"] is None


def test_every_limit_of_the_catalogue_has_a_name() -> None:
    for lab in load_catalogue().labs.values():
        if lab.decision_limits:
            assert all(limit["name"] for limit in lab_facts(lab.name, lab.unit)["limits"]), lab.name


def test_ranges_lie_where_values_are_not_rare() -> None:
    for lab in load_catalogue().labs.values():
        if lab.reference:
            assert lab.flag.low <= lab.reference.low < lab.reference.high <= lab.flag.high, lab.name
