"""docs/reliability.md, counted from the tests themselves: `python tools/reliability.py > docs/reliability.md`.

Cases per surface are collected from tests/hostile: every recorded case counts once, a test of invented cases as many
times as it invents. The promises stand here with the tests that hold them; a name that is no test is an error.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SURFACES = {
    "tables": "tables and files of visits: types, names, cells, bytes",
    "dates": "dates, timestamps and clocks",
    "units": "units, whole columns and mixtures",
    "settings": "options, flags and configuration files",
    "sources": "clinical sources as published, damaged",
    "models": "model folders, damaged and forged",
    "places": "output folders, locks, leftovers",
    "signals": "signals, full disks, endings",
    "requests": "requests to the review page, exports",
}
HELD: dict[str, tuple[str, ...]] = {
    "The false discovery rate holds, with power": (
        "statistical/test_release_holds.py::test_mean_fdp_stays_below_the_level_with_power",
        "lab/tests/statistical/test_rules_hold.py::test_average_keeps_the_level_over_all_released_values",
        "lab/tests/statistical/test_claims_hold.py::test_over_cohorts",
    ),
    "Outside its scope a promise is refused": (
        "model/test_scope.py::test_time_beyond_the_learnt_range_is_out_of_scope",
        "model/test_scope.py::test_the_claim_visits_promises_nothing_to_new_visits",
        "test_best_estimator.py::test_weights_too_uneven_are_refused",
    ),
    "A patient is in one split only": (
        "learning/test_folds.py::test_a_patients_visits_share_one_fold",
        "learning/best/test_system.py::test_a_panel_holds_nobody_of_its_own_fold",
    ),
    "Nothing leaks from the future, nor from a visit's own target": (
        "learning/best/test_system.py::test_deleting_later_visits_changes_nothing_when_only_the_past_counts",
        "statistical/test_no_leak.py::test_a_visits_own_target_changes_nothing_said_about_it",
        "learning/best/test_no_leak.py::test_no_measured_visit_sees_itself",
    ),
    "Order, batch, shard and threads change nothing": (
        "model/test_scoring.py::test_row_and_column_order_do_not_matter",
        "model/test_scoring.py::test_one_patient_at_a_time_equals_all_together",
        "spark/test_spark.py::test_rows_equal_the_local_engines",
        "learning/best/test_system.py::test_the_same_seed_gives_the_same_bytes_however_many_work",
    ),
    "The same seed gives the same bytes": (
        "learning/best/test_system.py::test_the_same_seed_gives_the_same_bytes_however_many_work",
    ),
    "A saved model comes back the same": (
        "model/test_folder.py::test_what_was_learnt_comes_back_to_the_byte",
        "model/test_folder.py::test_a_loaded_model_imputes_and_scores_the_same",
    ),
    "Measured values are never changed": (
        "test_best_estimator.py::test_transform_fills_released_values_and_nothing_else",
        "visits/test_visits_table.py::test_any_dataframe_goes_in_and_is_left_alone",
    ),
    "Units are exact, and never mixed": (
        "hostile/test_units.py::test_another_unit_is_found_in_all_rows_or_in_some",
        "hostile/test_units.py::test_the_flag_converts_exactly_as_the_catalogue_says",
        "hostile/test_units.py::test_scoring_checks_units_as_a_run_does",
    ),
    "Every row is accounted for": (
        "visits/test_visits_table.py::test_rows_at_one_time_are_one_visit_and_counted",
        "test_best_estimator.py::test_one_row_per_missing_target",
        "hostile/test_columns.py::test_uneven_rows_are_counted_not_filled_up",
    ),
    "Degenerate cohorts are named": (
        "learning/test_folds.py::test_too_few_to_learn_from_are_refused",
        "test_best_estimator.py::test_too_small_tables_are_refused_before_any_work",
        "hostile/test_columns.py::test_any_table",
    ),
    "Loading a model runs no code, and a forged one ends nothing but its worker": (
        "model/test_folder.py::test_loading_runs_no_code",
        "hostile/test_forged_models.py::test_forged_trees",
        "hostile/test_forged_models.py::test_a_worker_that_dies_takes_nothing_along",
    ),
    "No patient's data stands in messages, logs or traces": (
        "visits/test_visits_table.py::test_messages_never_quote_a_cell",
        "hostile/test_columns.py::test_a_first_row_of_data_is_never_shown",
        "hostile/test_endings.py::test_a_trace_says_where_and_quotes_no_patient",
    ),
    "Outputs stay in their folder and take nothing of the user's": (
        "hostile/test_places.py::test_a_file_of_a_known_name_does_not_make_a_folder_ours",
        "hostile/test_places.py::test_force_replaces_what_we_wrote_and_nothing_else",
        "hostile/test_places.py::test_what_is_read_is_never_written_over",
    ),
    "Exports are inert": (
        "hostile/test_requests.py::test_no_cell_of_an_export_acts_as_a_formula",
        "hostile/test_requests.py::test_whatever_the_text_is",
    ),
    "A killed run leaves nothing that looks finished": (
        "cli/test_cli.py::test_a_killed_run_leaves_nothing_that_looks_finished",
        "hostile/test_endings.py::test_what_kill_9_leaves_is_private_named_and_cleared_by_the_next_run",
        "hostile/test_endings.py::test_a_signal_at_any_moment_leaves_nothing_unfinished",
    ),
    "The page answers this machine only, by token and Host": (
        "web/test_guard.py::test_without_the_token_nothing_is_shown",
        "web/test_guard.py::test_a_foreign_host_is_refused_even_with_the_token",
        "hostile/test_requests.py::test_any_request",
    ),
    "Memory is bounded": (
        "machine/test_memory_ceiling.py::test_a_real_run_keeps_the_ceiling",
        "machine/test_memory_ceiling.py::test_the_ceiling_holds_while_a_table_is_read",
    ),
    "Only finite numbers are released": (
        "visits/test_imputations.py::test_no_nan_and_no_infinity_ever",
        "hostile/test_bad_tables.py::test_every_larger_number_is_refused_by_name",
    ),
    "Dates are never guessed": (
        "hostile/test_dates.py::test_what_could_mean_two_days_is_refused_by_its_form",
        "hostile/test_dates.py::test_any_text_is_read_as_itself_or_refused",
    ),
}
HEAD = """# What was tried to break it

Made by `python tools/reliability.py > docs/reliability.md` from the tests; a test fails when the page is out of date.
*Recorded* cases are written down, *invented* ones are drawn by Hypothesis. Each ends well or in one plain line with
exit code 2, never in a trace, a lost file or a patient's value in a message.

| surface | what is tried | recorded | invented, `make test` | invented, `make test-full` |
| --- | --- | ---: | ---: | ---: |
"""
PROMISES = """
## Twenty promises, and the tests that hold them

Paths are below `tests/`.

| promise | held by |
| --- | --- |
"""
TAIL = """
## What is not promised

- A model folder without a signature may be somebody else's: it cannot end the program or run code, but its values are
  theirs. `run --sign KEY`, `score --require-signature KEY`.
- Units that lie close together cannot be told by values (urea in mmol/L against mg/dL, magnesium, a column of bilirubin
  that is wholly in µmol/L): say them with `--unit-of`.
- A disk that lies about what it wrote, and an administrator of the machine.
"""


def collect() -> list[dict[str, Any]]:
    """Every case of tests/hostile with its surface, as pytest collects them."""
    told = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "reliability", "tests/hostile"]
    done = subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=False)
    line = next((each for each in done.stdout.splitlines() if each.startswith("CASES ")), None)
    if line is None or done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    found: list[dict[str, Any]] = json.loads(line.removeprefix("CASES "))
    return found


def pytest_collection_finish(session: Any) -> None:
    """A plugin of pytest: print what was collected."""
    cases = []
    for item in session.items:
        marks = [mark.args[0] for mark in item.iter_markers("surface")]
        inner = getattr(item.obj, "_hypothesis_internal_use_settings", None)
        drawn = inner.max_examples if inner is not None and hasattr(item.obj, "hypothesis") else 0
        full = item.get_closest_marker("full") is not None
        cases.append({"surfaces": marks, "node": item.nodeid, "drawn": drawn, "full": full})
    print("\nCASES " + json.dumps(cases))


def page(cases: list[dict[str, Any]]) -> str:
    recorded: Counter[str] = Counter()
    quick: Counter[str] = Counter()
    long: Counter[str] = Counter()
    for case in cases:
        if len(case["surfaces"]) != 1 or case["surfaces"][0] not in SURFACES:
            raise SystemExit(f"{case['node']} names no surface, or more than one")
        surface = case["surfaces"][0]
        if case["drawn"]:
            (long if case["full"] else quick)[surface] += case["drawn"]
        else:
            recorded[surface] += 1
    rows = [
        f"| {name} | {what} | {recorded[name]:,} | {quick[name]:,} | {long[name]:,} |\n"
        for name, what in SURFACES.items()
    ]
    total = [sum(each.values()) for each in (recorded, quick, long)]
    rows.append(f"| **together** | | {total[0]:,} | {total[1]:,} | {total[2]:,} |\n")
    promises = [
        f"| {number}. {promise} | {', '.join(f'`{node}`' for node in nodes)} |\n"
        for number, (promise, nodes) in enumerate(HELD.items(), 1)
    ]
    return HEAD + "".join(rows) + PROMISES + "".join(promises) + TAIL


def missing_tests() -> list[str]:
    """Tests that the promises name and that are not there."""
    return [node for nodes in HELD.values() for node in nodes if not _is_there(node)]


def _is_there(node: str) -> bool:
    file, _, name = node.partition("::")
    path = ROOT / file if file.startswith("lab/") else ROOT / "tests" / file
    return path.is_file() and name in _names(path)


def _names(path: Path) -> set[str]:
    """Functions of a module, and names that it assigns."""
    found = set()
    for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(each, ast.FunctionDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign):
            found |= {name.id for name in ast.walk(each) if isinstance(name, ast.Name)}
    return found


def main() -> None:
    if missing := missing_tests():
        raise SystemExit(f"no such tests: {', '.join(missing)}")
    sys.stdout.write(page(collect()))


if __name__ == "__main__":
    main()
