"""FHIR bundles validate, resolve, carry their marks, and come back as imputed, never as measured."""

import gzip
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import helpers.clinical_sources as sources
from helpers.cohort_engines import built
from helpers.exports import PROMISE, exported, imputations, review
from safeimpute.errors import OptionError, SourceError
from safeimpute.sources.readers.fhir import flatten_results
from safeimpute.sources.writers import fhir
from safeimpute.sources.writers.exported import Exported
from safeimpute.sources.writers.fhir import observations_behind
from safeimpute.visits.catalogue import load_catalogue


def bundles_of(folder: Path, export: Exported, **options: Any) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    fhir.write_fhir(folder, export, **options)
    with gzip.open(folder / fhir.FILE, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def resources(bundles: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    found = [entry["resource"] for bundle in bundles for entry in bundle["entry"]]
    return [each for each in found if each["resourceType"] == kind]


def references(content: Any) -> set[str]:
    if isinstance(content, list):
        return set().union(*map(references, content)) if content else set()
    if not isinstance(content, dict):
        return set()
    own = {content["reference"]} if isinstance(content.get("reference"), str) else set()
    return own.union(*map(references, content.values()))


def test_every_resource_validates_and_every_reference_resolves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fhir.resources.R4B import get_fhir_model_class

    monkeypatch.setattr(fhir, "AT_ONCE", 5)
    table = pl.concat([imputations(12), imputations(7, lab="platelets", unit="10^3/uL")])
    said = review(19, r0="accepted", r1="rejected", r13="accepted")
    bundles = bundles_of(tmp_path, exported(table, review=said))
    assert [len(bundle["entry"]) for bundle in bundles] == [7, 7, 7, 6]
    for bundle in bundles:
        get_fhir_model_class("Bundle").model_validate(bundle)
        there = {f"{e['resource']['resourceType']}/{e['resource']['id']}" for e in bundle["entry"]}
        assert there == {entry["request"]["url"] for entry in bundle["entry"]}
        for entry in bundle["entry"]:
            resource = entry["resource"]
            get_fhir_model_class(resource["resourceType"]).model_validate(resource)
            ours = {each for each in references(resource) if not each.startswith("Patient/")}
            assert ours <= there
    observations = resources(bundles, "Observation")
    assert len({each["id"] for each in observations}) == 19
    targets = [each["reference"] for p in resources(bundles, "Provenance") for each in p["target"]]
    assert sorted(targets) == sorted(f"Observation/{each['id']}" for each in observations)
    assert len({json.dumps(each) for each in resources(bundles, "Device")}) == 1


def test_an_observation_says_what_it_is(tmp_path: Path) -> None:
    table = imputations(4)
    bundles = bundles_of(tmp_path, exported(table, review=review(4, r0="accepted", r2="accepted")))
    accepted, plain, withheld, open_ended = resources(bundles, "Observation")
    assert accepted["meta"]["security"][0]["code"] == "CLINAST_AIRPT"
    assert accepted["status"] == "final"
    assert accepted["note"][1]["authorString"] == 'Dr. "Quote"'
    assert plain["meta"]["security"] == [
        {
            "system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue",
            "code": "AIAST",
            "display": "Artificial Intelligence asserted",
        }
    ]
    assert plain["status"] == "preliminary"
    assert plain["code"]["coding"] == [{"system": "http://loinc.org", "code": "4548-4"}]
    assert plain["valueQuantity"]["value"] == round(table["value"][1], 1)  # as HbA1c is reported
    assert plain["valueQuantity"]["code"] == "%"
    bounds = plain["component"][0]["valueRange"]
    assert (bounds["low"]["value"], bounds["high"]["value"]) == tuple(
        round(table[end][1], 1) for end in ("lower", "upper")
    )
    assert plain["note"] == [{"text": PROMISE}]
    assert "not measured" in plain["method"]["text"]
    # Accepted by a reviewer, but withheld by the run: still without a value.
    assert "valueQuantity" not in withheld
    assert "component" not in withheld
    assert withheld["dataAbsentReason"]["text"] == "withheld: risk above cut-off"
    assert withheld["meta"]["security"][0]["code"] == "AIAST"
    assert "component" not in open_ended
    device = resources(bundles, "Device")[0]
    assert device["version"] == [{"value": "9.9.9"}]
    assert device["identifier"][0]["value"] == "cd" * 32
    agents = resources(bundles, "Provenance")[0]["agent"]
    assert [agent["type"]["coding"][0]["code"] for agent in agents] == ["author", "verifier"]


def test_no_guarantee_is_marked_in_every_resource(tmp_path: Path) -> None:
    bundles = bundles_of(tmp_path, exported(promise=""))
    for each in resources(bundles, "Observation"):
        assert {"system": "urn:safeimpute:mark", "code": "no-guarantee"} in each["meta"]["tag"]
        assert each["note"][0]["text"] == "No guarantee: second look at the same visits."


@pytest.mark.parametrize("odd", ['<img src=x onerror="1">', "a/b", "ä", "x" * 65, "back\\slash\n"])
def test_identifiers_of_every_kind_come_back(odd: str, tmp_path: Path) -> None:
    from fhir.resources.R4B import get_fhir_model_class

    subject = pl.Series(["plain-1.a", odd, "plain-1.a"])
    bundle = bundles_of(tmp_path, exported(imputations(3, subject=subject)))[0]
    get_fhir_model_class("Bundle").model_validate(bundle)
    (tmp_path / "work").mkdir()
    found = flatten_results(tmp_path, tmp_path / "work", load_catalogue())
    assert found["subject_id"].to_list() == subject.to_list()
    assert found["imputed"].all()


def test_times_come_back_with_their_zone(tmp_path: Path) -> None:
    moments = [datetime(2024, 3, 30, 23, 30, 0, 250), datetime(2024, 10, 27, 2, 30), datetime(2024, 1, 1)]
    zoned = pl.Series(moments).dt.replace_time_zone("Europe/Berlin", ambiguous="earliest")
    bundle = bundles_of(tmp_path / "zoned", exported(imputations(3, time=zoned)))
    told = [each["effectiveDateTime"] for each in resources(bundle, "Observation")]
    assert [text[-6:] for text in told] == ["+01:00", "+02:00", "+01:00"]
    assert [datetime.fromisoformat(text).timestamp() for text in told] == [each.timestamp() for each in zoned]
    naive = exported(imputations(3, time=pl.Series(moments)))
    told = [e["effectiveDateTime"] for e in resources(bundles_of(tmp_path / "utc", naive), "Observation")]
    assert [datetime.fromisoformat(text).replace(tzinfo=None) for text in told] == moments
    assert all(text.endswith("+00:00") for text in told)
    local = bundles_of(tmp_path / "local", naive, zone="America/New_York")
    assert resources(local, "Observation")[2]["effectiveDateTime"] == "2024-01-01T00:00:00.000000-05:00"
    with pytest.raises(OptionError, match="is no time zone"):
        bundles_of(tmp_path / "x", naive, zone="Nowhere/Here")
    gap = exported(imputations(3, time=pl.Series([datetime(2024, 3, 31, 2, 30)] * 3)))
    with pytest.raises(OptionError, match="3 times do not exist"):
        bundles_of(tmp_path / "y", gap, zone="Europe/Berlin")


def test_the_loop_is_closed(tmp_path: Path) -> None:
    records = sources.invented(seed=21)
    folder = sources.write_fhir(records, tmp_path / "source")
    table = pl.Series([str(1 + row % 8) for row in range(60)])
    export = exported(imputations(60, subject=table), review=review(60, r0="accepted"))
    before, record = built("fhir", str(folder), tmp_path / "visits.parquet", diabetes="none", anchors="any")
    bytes_before = (tmp_path / "visits.parquet").read_bytes()
    fhir.write_fhir(folder, export)
    _, again = built("fhir", str(folder), tmp_path / "visits.parquet", diabetes="none", anchors="any")
    assert len(before) > 10
    assert (tmp_path / "visits.parquet").read_bytes() == bytes_before
    assert again["accounts"]["set_aside"]["imputed, not measured"] == {"hba1c": 60}
    assert again["accounts"]["used"] == record["accounts"]["used"]
    assert again["accounts"]["rows"] == record["accounts"]["rows"] + 60


def test_an_export_alone_holds_no_measurement(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    fhir.write_fhir(tmp_path / "export", exported())
    with pytest.raises(SourceError, match="12 imputed, not measured"):
        built("fhir", str(tmp_path / "export"), tmp_path / "visits.parquet", diabetes="none")


@pytest.mark.parametrize("mark", ["security", "tag"])
def test_either_mark_is_enough(mark: str, tmp_path: Path) -> None:
    bundle = bundles_of(tmp_path / "a", exported(imputations(3)))[0]
    for entry in bundle["entry"]:
        if entry["resource"]["resourceType"] == "Observation":
            entry["resource"]["meta"].pop(mark)
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b.json").write_text(json.dumps(bundle))
    (tmp_path / "work").mkdir()
    assert flatten_results(tmp_path / "b.json", tmp_path / "work", load_catalogue())["imputed"].all()


def test_derived_from_names_the_results_that_carried_a_value(tmp_path: Path) -> None:
    drawn = datetime(2150, 2, 1, 6, 0)
    measured = [
        sources.observation(sources.Result(1, "hba1c", 6.0, drawn, "%"), id="first"),
        sources.observation(sources.Result(1, "hba1c", 6.4, datetime(2150, 2, 20, 8), "%"), id="second"),
        sources.observation(sources.Result(1, "glucose", 90.0, drawn, "mg/dL"), id="another-lab"),
        sources.observation(sources.Result(2, "hba1c", 9.0, drawn, "%"), id="another-patient"),
    ]
    (tmp_path / "source.ndjson").write_text("\n".join(map(json.dumps, measured)))
    table = imputations(2, subject=pl.Series(["1", "1"]))
    why = pl.DataFrame(
        {
            "subject_id": ["1"] * 4,
            "time": [table["time"][0]] * 4,
            "carried_by": ["own visit", "own visit", "own visit", "another patient's visit"],
            "weight": [0.5, 0.3, 0.001, 0.2],
            "gap_days": [
                (drawn.replace(hour=9) - table["time"][0]).total_seconds() / 86_400,  # a visit later that day
                (datetime(2150, 2, 20, 8) - table["time"][0]).total_seconds() / 86_400,
                -500.0,
                None,
            ],
        }
    )
    export = exported(table)
    found = observations_behind(export, why, tmp_path / "source.ndjson", load_catalogue())
    assert found.to_dicts() == [{"row": 0, "references": ["Observation/first", "Observation/second"]}]
    first, second = resources(bundles_of(tmp_path, export, derived_from=found), "Observation")
    assert [each["reference"] for each in first["derivedFrom"]] == ["Observation/first", "Observation/second"]
    assert "derivedFrom" not in second
