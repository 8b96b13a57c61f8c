"""The report's last sections as plain data: the visits as they came, and the model card."""

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from safeimpute.evaluation.data_profile import DataProfile
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.machine.files import plain_text
from safeimpute.report.charts import holds_the_rest, pixel_strip
from safeimpute.report.palette import NBSP, number, percent, sentence
from safeimpute.report.run_folder import InputRecord, Manifest
from safeimpute.tolerance import Tolerance, parse_tolerance

MOST_LABS = 40
METHODS = {
    "paper": (
        "Visits form a graph: consecutive visits of a patient are linked in time, similar visits of other "
        "patients by their other labs and trends. A graph network with one gate between both kinds of link "
        "imputes the target. The risk of a value grows with how much it moves when links are dropped at "
        "random and with how few links support it."
    ),
    "best": (
        "The value blends the patient's own course over time with boosted trees on the patient's other values, other "
        "labs and similar visits of other patients. The risk is learnt: how likely the error reaches the tolerance. "
        "Patients are divided into folds, and each is imputed by models that never saw it."
    ),
}
BY_HOLD_OUT = " Conformal p-values against visits set aside for nothing else decide what is released."
BY_LEDGER = (
    " Every measured visit is imputed as if it were missing; these errors, weighted to stand for unmeasured visits and "
    "added up patient by patient, decide up to which risk values are released."
)
INTENDED_USE = (
    "Filling in lab values that were not measured, for research, cohort building and data quality work, "
    "where the share of unacceptable errors among the filled-in values must stay bounded on average."
)
NOT_FOR = (
    "Diagnosing, treating or triaging a single patient; replacing a measurement that can still be made; "
    "patients, laboratories or periods unlike the table it was fitted on, without an evaluation there."
)


class ModelCard(TypedDict):
    """What a model is for, what it came from, and every setting, as named rows."""

    rows: list[tuple[str, str]]
    configuration: list[tuple[str, str]]


def data_content(data: DataProfile, source: InputRecord) -> dict[str, object]:
    """Rows, columns, and what was measured at which visits."""
    labs = sorted(zip(data["labs"], zip(*data["heat_map"], strict=True), strict=True), key=lambda lab: lab[0])
    labs.sort(key=lambda lab: -data["observed_share"][lab[0]])
    median = data["median_gap_days"]
    return {
        "facts": [
            ("Rows read", f"{data['rows']:,}"),
            ("Merged (same patient and time)", f"{data['merged_rows']:,}"),
            *((f"Dropped: {plain_text(why)}", f"{count:,}") for why, count in source["dropped_rows"].items()),
            ("Visits", f"{data['visits']:,}"),
            ("Patients", f"{data['patients']:,}"),
            ("Visits per patient, mean", number(data["mean_visits_per_patient"])),
            ("Days between visits, median", "–" if median is None else f"{number(median)} days"),
        ],
        "heat_map": [
            {
                "lab": plain_text(name, 40),
                "strip": pixel_strip(shares),
                "measured": percent(data["observed_share"][name]),
            }
            for name, shares in labs[:MOST_LABS]
        ],
        "more_labs": max(0, len(labs) - MOST_LABS),
        "attributes": [plain_text(name, 60) for name in data["attributes"]],
        "high_cardinality": [plain_text(name, 60) for name in data["high_cardinality"]],
        "rest_of_visits": holds_the_rest(data["visits_per_patient"]["edges"]),
        "rest_of_gaps": holds_the_rest(data["gap_days"]["edges"]),
        "ignored": sorted((plain_text(name, 60), plain_text(why)) for name, why in data["ignored"].items()),
    }


def model_card(summary: RunSummary, manifest: Manifest) -> ModelCard:
    """What it is for and not for, the data, the method, and every setting."""
    config, source = manifest["config"], manifest["input"]
    versions = {"safeimpute": manifest["safeimpute"], "Python": manifest["python"], **manifest["packages"]}
    file = f"{plain_text(source['file'])}, SHA-256 {source['sha256']}" if source["file"] else "bundled or in memory"
    selection = BY_HOLD_OUT if summary["claim"] == "visits" else BY_LEDGER
    seconds = (f"{stage} {seconds:.1f}{NBSP}s" for stage, seconds in summary["seconds"].items())
    data = f"{summary['data']['visits']:,} visits of {summary['data']['patients']:,} patients"
    return {
        "rows": [
            ("Intended use", INTENDED_USE),
            ("Not for", NOT_FOR),
            ("Data", f"{data}; {file}"),
            ("Visits, SHA-256", source["visits_sha256"]),
            ("Method", METHODS.get(summary["preset"], f"Preset {summary['preset']}.") + selection),
            ("Time", ", ".join(seconds) or "not recorded"),
            ("Seed", str(config["random_state"])),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("Written", str(manifest["written"])),
        ],
        "configuration": [(name, plain_text(value)) for name, value in _flat(config)],
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ", ".join(map(str, value)) if isinstance(value, list) else value


def allowed_error(summary: RunSummary) -> Tolerance:
    """The tolerance, read."""
    return parse_tolerance(summary["tolerance"])


def band_rows(summary: RunSummary) -> list[dict[str, str]]:
    """Where limits count: how measured values of each band were imputed, and what was released."""

    def share(part: int, whole: int) -> str:
        return f"{percent(part / whole)} of {whole:,}" if whole else "–"

    return [
        {
            "band": plain_text(row["band"], 60),
            "found": share(row["right"], row["measured"]),
            "right": share(row["right"], row["into"]),
            "released": share(row["released"], row["missing"]),
        }
        for row in summary.get("bands", [])
    ]


def unacceptable(summary: RunSummary) -> str:
    """What counts as unacceptable, as the beginning of a sentence."""
    if not (summary.get("bands") or allowed_error(summary).graded):
        return f"An error counts as unacceptable from {sentence(summary['tolerance_in_words'])}"
    fault = allowed_error(summary).fault(summary["unit"])
    if allowed_error(summary).graded:
        return f"Values count as {sentence(fault)}"
    return f"A value counts as unacceptable where it is {sentence(fault)}"
