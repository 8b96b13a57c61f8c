import gzip
import os
from importlib import resources
from pathlib import Path

import polars as pl
import pytest

from safeimpute.visits.examples import PBC_SCHEMA, PBC_UNITS, load_pbc

DATA = resources.files("safeimpute.visits") / "data"
RENAMED = {
    "id": "subject_id",
    "day": "time",
    "bili": "bilirubin",
    "chol": "cholesterol",
    "alk.phos": "alkaline_phosphatase",
    "platelet": "platelets",
}


@pytest.fixture(scope="module")
def pbc() -> pl.DataFrame:
    return load_pbc()


def test_has_the_published_size(pbc: pl.DataFrame) -> None:
    assert pbc.height == 1945
    assert pbc["subject_id"].n_unique() == 312
    assert pbc["cholesterol"].null_count() == 821


def test_columns_are_the_documented_ones_and_no_outcome(pbc: pl.DataFrame) -> None:
    assert dict(pbc.schema) == PBC_SCHEMA
    assert not {"futime", "status", "visit_no", "stage"} & set(pbc.columns)
    assert set(PBC_UNITS) == set(pbc.columns) - {"subject_id", "time", "age", "sex", "treatment"}


def test_visits_are_distinct_and_in_order(pbc: pl.DataFrame) -> None:
    key = pbc.select("subject_id", "time")
    assert key.equals(key.unique().sort("subject_id", "time"))
    assert pbc.group_by("subject_id").agg(pl.col("time").min())["time"].unique().to_list() == [0.0]


def test_attributes_never_vary_within_a_patient(pbc: pl.DataFrame) -> None:
    levels = pbc.group_by("subject_id").agg(pl.col("age", "sex", "treatment").n_unique())
    assert levels.select(pl.max_horizontal(pl.exclude("subject_id").max())).item() == 1
    assert set(pbc["sex"]) == {"F", "M"}
    assert set(pbc["treatment"]) == {"D-penicillamine", "placebo"}


@pytest.mark.parametrize(
    ("lab", "median"), [("bilirubin", 1.4), ("cholesterol", 281), ("albumin", 3.44), ("ast", 107), ("platelets", 228)]
)
def test_labs_keep_their_published_medians(pbc: pl.DataFrame, lab: str, median: float) -> None:
    assert pbc[lab].median() == pytest.approx(median)


def test_licence_and_citations_travel_with_the_data() -> None:
    notice = (DATA / "NOTICE-pbc.md").read_text(encoding="utf-8")
    assert "LGPL (>= 2)" in notice
    assert "3.5-3" in notice
    assert "GNU LIBRARY GENERAL PUBLIC LICENSE" in (DATA / "LICENSE-LGPL-2.txt").read_text(encoding="utf-8")
    citation = (DATA / "CITATION").read_text(encoding="utf-8")
    assert "Murtaugh" in citation
    assert "Fleming" in citation


def test_every_column_is_explained_in_the_notice(pbc: pl.DataFrame) -> None:
    notice = (DATA / "NOTICE-pbc.md").read_text(encoding="utf-8")
    assert [column for column in pbc.columns if f"`{column}`" not in notice] == []
    for lab, unit in PBC_UNITS.items():
        (row,) = [line for line in notice.splitlines() if line.startswith(f"| `{lab}`")]
        assert unit in row


@pytest.mark.data
def test_agrees_with_the_source(pbc: pl.DataFrame) -> None:
    folder = os.environ.get("SAFEIMPUTE_DATA")
    if folder is None:
        pytest.skip("SAFEIMPUTE_DATA does not name a folder with the open clinical data")
    packed = Path(folder, "mayo_pbc", "pbcseq_visits.csv.gz").read_bytes()
    source = pl.read_csv(gzip.decompress(packed), infer_schema_length=None).rename(RENAMED)
    numbers = ["subject_id", "time", *PBC_UNITS]
    assert pbc.select(numbers).equals(source.select(numbers).cast({"time": pl.Float64}))
    assert ((pbc["treatment"] == "D-penicillamine") == (source["trt"] == 1)).all()
    assert (pbc["sex"] == source["sex"].str.to_uppercase()).all()
    assert (pbc["age"] - source["age"]).abs().max() <= 0.00501  # type: ignore[operator]
