"""FHIR R4: imputations as labelled Observations in transaction bundles, one bundle a line, text built by column."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from safeimpute.errors import OptionError
from safeimpute.sources.writers.exported import ACCEPTED, CodedLab, Exported, Origin, in_utc, moments_of
from safeimpute.visits import marks
from safeimpute.visits.catalogue import Catalogue
from safeimpute.visits.visits import subject_names

FILE = "imputations.ndjson.gz"
AT_ONCE = 500  # Observations in a bundle
PORTION = 40 * AT_ONCE  # rows whose text is made together
LITERAL_ID = r"^[A-Za-z0-9\-.]{1,64}$"
LOINC, UCUM = "http://loinc.org", "http://unitsofmeasure.org"
CATEGORY = "http://terminology.hl7.org/CodeSystem/observation-category"
ABSENT = "http://terminology.hl7.org/CodeSystem/data-absent-reason"
PARTICIPANT = "http://terminology.hl7.org/CodeSystem/provenance-participant-type"
UCUM_CODES = {"10^3/uL": "10*3/uL", "mmHg": "mm[Hg]", "bpm": "/min", "insp/min": "/min", "°C": "Cel", "°F": "[degF]"}
ACCEPTED_VALUE = pl.col("given") & (pl.col("review") == ACCEPTED)
Json = dict[str, Any]
OWN = "own visit"  # in why.parquet, beside other patients' visits
DAY = 86_400_000_000  # microseconds
LEAST_WEIGHT = 0.01  # a visit that carried less is not named


def write_fhir(folder: Path, export: Exported, *, zone: str = "UTC", derived_from: pl.DataFrame | None = None) -> None:
    """Write the bundles into an unfinished folder.

    `zone` is what timestamps without one are in; `derived_from` (row, references) names the Observations that carried
    an imputation, where they are known.
    """
    rows = export.rows
    parts = {name: _constant_parts(each, export.origin) for name, each in export.labs.items()}
    first = 0
    with gzip.open(folder / FILE, "wt", compresslevel=1, encoding="utf-8", newline="\n") as file:
        for portion in rows.iter_slices(PORTION):
            entries = _entries(portion, parts, export.origin, zone, derived_from)
            ids = _ids(portion["row"], export.origin).to_list()
            reviewers = portion.select(pl.when(ACCEPTED_VALUE).then("reviewed_by")).to_series().to_list()
            for start in range(0, len(entries), AT_ONCE):
                here = slice(start, start + AT_ONCE)
                accepted_by = sorted({name for name in reviewers[here] if name})
                file.write(_bundle(export.origin, first + start, entries[here], ids[here], accepted_by))
            first += len(entries)


def _bundle(origin: Origin, first: int, observations: list[str], ids: list[str], accepted_by: list[str]) -> str:
    device, provenance = device_resource(origin), _provenance(origin, first, ids, accepted_by)
    entries = ",".join([_entry(device), *observations, _entry(provenance)])
    return f'{{"resourceType":"Bundle","id":"{_run_id(origin)}-b{first}","type":"transaction","entry":[{entries}]}}\n'


def device_resource(origin: Origin) -> Json:
    """What imputed: this program, its version, and the fitted model by its checksum."""
    return {
        "resourceType": "Device",
        "id": f"safeimpute-{origin.model[:16]}",
        "identifier": [{"system": "urn:safeimpute:model", "value": origin.model}],
        "deviceName": [{"name": "safeimpute", "type": "model-name"}],
        "type": {"text": "Software that imputes missing laboratory values"},
        "version": [{"value": origin.version}],
    }


def _provenance(origin: Origin, first: int, ids: list[str], accepted_by: list[str]) -> Json:
    author = {"type": _participant("author"), "who": _device(origin)}
    verifiers = [{"type": _participant("verifier"), "who": {"display": name}} for name in accepted_by]
    return {
        "resourceType": "Provenance",
        "id": f"{_run_id(origin)}-p{first}",
        "target": [{"reference": f"Observation/{each}"} for each in ids],
        "recorded": origin.written,
        "activity": {"text": "imputation of laboratory values that were not measured"},
        "agent": [author, *verifiers],
        "entity": [{"role": "source", "what": {"identifier": {"system": "urn:safeimpute:run", "value": origin.table}}}],
    }


def _participant(code: str) -> Json:
    return {"coding": [{"system": PARTICIPANT, "code": code}]}


def _device(origin: Origin) -> Json:
    return {"reference": f"Device/safeimpute-{origin.model[:16]}"}


def _entry(resource: Json) -> str:
    place = f"{resource['resourceType']}/{resource['id']}"
    request = f'"request":{{"method":"PUT","url":"{place}"}}'
    return f'{{"resource":{json.dumps(resource, separators=(",", ":"))},{request}}}'


def _run_id(origin: Origin) -> str:
    return f"si-{origin.table[:16]}"


def _ids(row: pl.Series, origin: Origin) -> pl.Series:
    return pl.select(pl.format("{}-{}", pl.lit(_run_id(origin)), row)).to_series()


def _constant_parts(coded: CodedLab, origin: Origin) -> Json:
    """What all Observations of a lab share, as JSON text without its braces."""
    lab, promise = coded.lab, coded.promise
    unit = {"unit": lab.unit, "system": UCUM, "code": UCUM_CODES.get(lab.unit, lab.unit)}
    tags = [] if promise.sentence else [{"system": marks.TAGS, "code": "no-guarantee"}]
    code = {"coding": [{"system": LOINC, "code": coded.code("loinc")}], "text": lab.title}
    category = [{"coding": [{"system": CATEGORY, "code": lab.category}]}]
    method = {"text": f"Imputed by safeimpute {origin.version} from other results of the record; not measured"}
    return {
        "tags": "".join(f",{json.dumps(tag, separators=(',', ':'))}" for tag in tags),
        "what": _inner({"category": category, "code": code, "method": method, "device": _device(origin)}),
        "unit": _inner(unit),
        "note": json.dumps({"text": promise.note}),
        "interval": _inner({"code": {"text": f"{100 * origin.coverage:g} % interval"}}),
    }


def _inner(content: Json) -> str:
    return json.dumps(content, separators=(",", ":"))[1:-1]


def _entries(
    rows: pl.DataFrame, parts: dict[str, Json], origin: Origin, zone: str, derived_from: pl.DataFrame | None
) -> list[str]:
    """The text of each row's entry; nothing is built row by row but what reviewers wrote."""
    of_lab = {
        key: pl.col("lab").replace_strict({name: each[key] for name, each in parts.items()}, return_dtype=pl.String)
        for key in ("tags", "what", "unit", "note", "interval")
    }
    ids = _ids(rows["row"], origin)
    carried = pl.lit("") if derived_from is None else _derived(rows, derived_from)
    frame = rows.with_columns(
        id=ids, who=_subjects(rows["subject"]), when=_times(rows["time"], zone), said=_said(rows), carried=carried
    )
    label = pl.when(ACCEPTED_VALUE).then(_json(marks.ACCEPTED)).otherwise(_json(marks.ASSERTED))
    tag = pl.when("given").then(_json(_tag("imputed"))).otherwise(_json(_tag("withheld")))
    status = pl.when(ACCEPTED_VALUE).then(pl.lit("final")).otherwise(pl.lit("preliminary"))
    head = pl.concat_str(
        *(pl.lit('{"resource":{"resourceType":"Observation","id":"'), pl.col("id")),
        *(pl.lit('","meta":{"security":['), label, pl.lit('],"tag":['), tag, of_lab["tags"]),
        *(pl.lit(']},"status":"'), status, pl.lit('",'), of_lab["what"], pl.lit(',"subject":{')),
        *(pl.col("who"), pl.lit('},"effectiveDateTime":"'), pl.col("when"), pl.lit('",')),
    )
    tail = pl.concat_str(
        *(pl.lit(',"note":['), of_lab["note"], pl.col("said"), pl.lit("]"), pl.col("carried")),
        *(pl.lit('},"request":{"method":"PUT","url":"Observation/'), pl.col("id"), pl.lit('"}}')),
    )
    value = (
        pl.when(pl.col("band").is_null())
        .then(_value(of_lab["unit"], of_lab["interval"]))
        .otherwise(_class(rows["band"]))
    )
    body = pl.when("given").then(value).otherwise(_withheld())
    return frame.select(entry=pl.concat_str(head, body, tail))["entry"].to_list()


def _value(unit: pl.Expr, interval: pl.Expr) -> pl.Expr:
    """The value, and its interval as a component where it has bounds."""
    value, low, high = (pl.col(name).cast(pl.String) for name in ("value", "lower", "upper"))
    component = pl.concat_str(
        *(pl.lit(',"component":[{'), interval, pl.lit(',"valueRange":{"low":{"value":'), low, pl.lit(",")),
        *(unit, pl.lit('},"high":{"value":'), high, pl.lit(","), unit, pl.lit("}}}]")),
    )
    quantity = pl.concat_str(pl.lit('"valueQuantity":{"value":'), value, pl.lit(","), unit, pl.lit("}"))
    return pl.concat_str(quantity, component.fill_null(""))


def _class(band: pl.Series) -> pl.Expr:
    """The class by its name; no code system is known to hold it."""
    text = pl.col("band").replace({each: json.dumps(each) for each in band.drop_nulls().unique()})
    return pl.concat_str(pl.lit('"valueCodeableConcept":{"text":'), text, pl.lit("}"))


def _withheld() -> pl.Expr:
    """No value: that there is none, and why in the run's words."""
    code = _inner({"coding": [{"system": ABSENT, "code": "unknown"}]})
    why = pl.col("reason").str.replace_all(r'[\\"\x00-\x1f]', " ")
    return pl.concat_str(pl.lit(f'"dataAbsentReason":{{{code},"text":"withheld: '), why, pl.lit('"}'))


def _json(content: Json) -> pl.Expr:
    return pl.lit(json.dumps(content, separators=(",", ":")))


def _tag(code: str) -> Json:
    return {"system": marks.TAGS, "code": code}


def _subjects(subject: pl.Series) -> pl.Series:
    """A reference to the patient; an identifier that cannot stand in an address is told as one."""
    names = subject_names(subject)
    literal = pl.select(pl.format('"reference":"Patient/{}"', names)).to_series()
    plain = names.str.contains(LITERAL_ID)
    if plain.all():
        return literal
    odd = names.filter(~plain).unique()
    told = {name: f'"type":"Patient","identifier":{{"value":{json.dumps(name)}}}' for name in odd}
    return literal.zip_with(plain, names.replace_strict(told, default="", return_dtype=pl.String))


def _times(time: pl.Series, zone: str) -> pl.Series:
    """ISO 8601 with the offset, as FHIR asks; a date stays one."""
    if time.dtype == pl.Date:
        return time.dt.strftime("%Y-%m-%d")
    if getattr(time.dtype, "time_zone", None) is None:
        time = _in_zone(time, zone)
    fraction = (time.dt.microsecond() != 0).any()
    return time.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f%:z" if fraction else "%Y-%m-%dT%H:%M:%S%:z")


def _in_zone(time: pl.Series, zone: str) -> pl.Series:
    try:
        zoned = time.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    except pl.exceptions.PolarsError:
        raise OptionError(f"--zone {zone!r} is no time zone. Give one such as Europe/Berlin, or UTC.") from None
    if lost := zoned.null_count() - time.null_count():
        raise OptionError(
            f"{lost:,} times do not exist in --zone {zone} (the clock was put forward). Give the zone they are in."
        )
    return zoned


def _said(rows: pl.DataFrame) -> pl.Series:
    """A further note where a reviewer accepted the value: who, when, and what was said."""
    columns = ("review", "reviewed_by", "reviewed_at", "comments")
    if not (rows["review"] == ACCEPTED).any():
        return pl.Series([""] * len(rows), dtype=pl.String)
    return pl.Series([_note(*row) for row in rows.select(columns).iter_rows()], dtype=pl.String)


def _note(review: str, by: str, at: str, comments: str) -> str:
    if review != ACCEPTED:
        return ""
    text = "Accepted after review." + (f" {comments}" if comments else "")
    return "," + json.dumps({"authorString": by, "time": at, "text": text})


def _derived(rows: pl.DataFrame, derived_from: pl.DataFrame) -> pl.Series:
    found = rows.select("row").join(derived_from, on="row", how="left", maintain_order="left")["references"].to_list()
    text = [
        "" if not each else f',"derivedFrom":{json.dumps([{"reference": name} for name in each])}' for each in found
    ]
    return pl.Series(text, dtype=pl.String)


def observations_behind(export: Exported, why: pl.DataFrame, source: Path, catalogue: Catalogue) -> pl.DataFrame:
    """Per row of the export (`row`) the `references` of results drawn on the days of the visits that carried it."""
    from safeimpute.sources.readers.fhir import flatten_results  # needs the extra [ehr], which the rest does not

    rows = export.rows.select(
        "row", "lab", subject=subject_names(export.rows["subject"]), moment=in_utc(export.rows["time"])
    )
    own = why.filter((pl.col("carried_by") == OWN) & (pl.col("weight") >= LEAST_WEIGHT))
    own = own.select(subject=subject_names(own["subject_id"]), moment=_moment(own["time"], rows), gap="gap_days")
    carried = rows.join(own, on=["subject", "moment"])
    visit = pl.col("moment") + pl.duration(microseconds=(pl.col("gap") * DAY).round().cast(pl.Int64))
    carried = carried.with_columns(visit=visit).with_columns(day=pl.col("visit").dt.date())
    with tempfile.TemporaryDirectory(prefix="safeimpute-fhir-") as folder:
        results = flatten_results(source, Path(folder), catalogue)
    found = carried.join(_coded(results, export), on=["subject", "lab", "day"])
    found = found.filter(pl.col("drawn") <= pl.col("visit") + pl.duration(seconds=1))
    reference = pl.concat_str(pl.lit("Observation/"), "id").unique().sort()
    return found.group_by("row").agg(references=reference)


def _moment(time: pl.Series, rows: pl.DataFrame) -> pl.Series:
    """As the export reads times; both come from one table."""
    return in_utc(moments_of(time)).cast(rows.schema["moment"])


def _coded(results: pl.DataFrame, export: Exported) -> pl.DataFrame:
    labs = {str(code): name for name, each in export.labs.items() for code in each.lab.codes_in("loinc")}
    measured = results.filter(pl.col("code").is_in(list(labs)) & ~pl.col("imputed") & pl.col("id").is_not_null())
    return measured.select(
        subject="subject_id",
        lab=pl.col("code").replace_strict(labs, return_dtype=pl.String),
        day=pl.col("drawn").dt.date(),
        drawn="drawn",
        id="id",
    )
