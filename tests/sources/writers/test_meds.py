"""MEDS events validate against the standard's own schemas, and come back as imputed, never as measured."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import meds.schema as meds
import polars as pl
import pyarrow.parquet as pq
import pytest

import helpers.clinical_sources as sources
from helpers.cohort_engines import built
from helpers.exports import exported, imputations
from safeimpute.errors import VisitsError
from safeimpute.sources.writers.meds import NO_GUARANTEE, write_meds
from safeimpute.visits.imputations import at_usual_precision


def test_the_data_set_validates(tmp_path: Path) -> None:
    table = pl.concat([imputations(12), imputations(6, lab="platelets", unit="10^3/uL")])
    write_meds(tmp_path, exported(table))
    events = pq.read_table(tmp_path / "data" / "0.parquet")
    meds.DataSchema.validate(events)
    meds.CodeMetadataSchema.validate(pq.read_table(tmp_path / meds.code_metadata_filepath))
    about = json.loads((tmp_path / meds.dataset_metadata_filepath).read_text())
    meds.DatasetMetadataSchema.validate(about)
    frame = pl.from_arrow(events)
    assert isinstance(frame, pl.DataFrame)
    assert len(frame) == 12  # withheld values are no events
    assert frame["code"].unique().sort().to_list() == [
        "SAFEIMPUTE//LAB//hba1c//%",
        "SAFEIMPUTE//LAB//platelets//10^3/uL",
    ]
    assert frame.equals(frame.sort("subject_id", "time", "code"))
    reported = at_usual_precision(table.filter("released"))
    assert sorted(frame["safeimpute_value"]) == sorted(reported["value"])
    assert frame["text_value"].null_count() == 12
    listed = pq.read_table(tmp_path / meds.code_metadata_filepath)["code"].to_pylist()
    assert set(listed) == set(frame["code"])


def test_no_guarantee_is_marked_in_every_event(tmp_path: Path) -> None:
    write_meds(tmp_path, exported(promise=""))
    assert pl.read_parquet(tmp_path / "data" / "0.parquet")["text_value"].to_list() == [NO_GUARANTEE] * 8


def test_zoned_times_are_told_in_utc(tmp_path: Path) -> None:
    zoned = pl.Series([datetime(2024, 10, 27, 2, 30)] * 3).dt.replace_time_zone("Europe/Berlin", ambiguous="latest")
    write_meds(tmp_path, exported(imputations(3, time=zoned)))
    assert pl.read_parquet(tmp_path / "data" / "0.parquet")["time"].to_list() == [datetime(2024, 10, 27, 1, 30)] * 2


def test_identifiers_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VisitsError, match="2 of 2 rows have identifiers"):
        write_meds(tmp_path, exported(imputations(3, subject=pl.Series(["a", "b", "c"]))))


def test_the_loop_is_closed(tmp_path: Path) -> None:
    folder = sources.write_meds(sources.invented(seed=21), tmp_path / "source")
    _, record = built("meds", str(folder), tmp_path / "visits.parquet", diabetes="none", anchors="any")
    bytes_before = (tmp_path / "visits.parquet").read_bytes()
    (tmp_path / "export").mkdir()
    write_meds(tmp_path / "export", exported(imputations(60)))
    shutil.copy(tmp_path / "export" / "data" / "0.parquet", folder / "data" / "imputed.parquet")
    _, again = built("meds", str(folder), tmp_path / "visits.parquet", diabetes="none", anchors="any")
    assert (tmp_path / "visits.parquet").read_bytes() == bytes_before
    assert again["accounts"]["set_aside"]["imputed, not measured"] == {"hba1c": 40}
    assert again["accounts"]["used"] == record["accounts"]["used"]
