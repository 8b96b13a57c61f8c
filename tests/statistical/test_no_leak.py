"""No target may reach what judges it: neither its own visit nor the model of its own fold, nor, held out, anything.

A measured visit is imputed, ranked, weighed and scoped as if it had not been measured: byte for byte.
"""

import numpy as np
import polars as pl
import pytest

from safeimpute.learning.best.system import FittedBest, fit_best
from safeimpute.learning.paper.graph import build_graph
from safeimpute.learning.paper.system import fit_paper
from safeimpute.learning.roles import Role, Roles, fold_of, hide
from safeimpute.model.fit import fit_question
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.questions import Question, draw_roles, question_of
from safeimpute.settings import ClaimName, GcnSettings, PaperSettings, Settings, make_settings
from safeimpute.visits.arrays import BoolArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

FOLDS, SEED = 3, 4
CLAIMS: tuple[ClaimName, ...] = ("unmeasured", "later")


@pytest.fixture(scope="module")
def visits() -> VisitArrays:
    return cohort_with_sites(SEED, 90)


def cohort_with_sites(seed: int, patients: int, first: int = 0) -> VisitArrays:
    """Patients of forty sites, a column of many levels."""
    table = simulate("mimic4", np.random.default_rng(seed), patients=patients).visits
    site = "site " + (pl.col("subject_id") * 7 % 40).cast(pl.String)
    table = table.with_columns(pl.col("subject_id") + first, site=site)
    return prepare_visits(table, ColumnChoice("hba1c")).arrays


def told(claim: ClaimName = "unmeasured") -> Settings:
    return make_settings(target="hba1c", tolerance=0.8, fdr=0.2, claim=claim, random_state=SEED, best={"folds": FOLDS})


def calibrated(visits: VisitArrays, claim: ClaimName = "unmeasured") -> Calibrated:
    question = question_of(visits, told(claim), draw_roles(visits, SEED))
    return fit_question(visits, question, told(claim), plausible=(0.0, 40.0))[1]


def one_of_each(visits: VisitArrays, patients: BoolArray) -> BoolArray:
    """One measured visit of every patient chosen."""
    rows = np.flatnonzero(~np.isnan(visits.target_values) & patients[visits.patient])
    rows = np.random.default_rng(0).permutation(rows)
    chosen = np.zeros(len(visits), dtype=bool)
    chosen[rows[np.unique(visits.patient[rows], return_index=True)[1]]] = True
    return chosen


def of_fold(visits: VisitArrays, number: int) -> BoolArray:
    """Per patient whether it lies in a fold."""
    fold = fold_of(visits.patient_key, SEED, FOLDS)
    return np.asarray(fold[np.unique(visits.patient, return_index=True)[1]] == number)


def with_targets(visits: VisitArrays, rows: BoolArray, value: float) -> VisitArrays:
    """Other targets at some visits; NaN takes them away."""
    return visits.with_target(np.where(rows, value + np.arange(len(visits)), visits.target_values))


def assert_same(one: Calibrated, other: Calibrated, rows: BoolArray) -> None:
    """Everything said about some visits is equal to the byte."""
    for name in ("value", "risk", "spread", "no_evidence"):
        first, second = (getattr(each.estimates, name)[rows] for each in (one, other))
        assert first.tobytes() == second.tobytes(), name
    assert one.weight[rows].tobytes() == other.weight[rows].tobytes()
    assert list(one.outside) == list(other.outside)
    for name, outside in one.outside.items():
        np.testing.assert_array_equal(outside[rows], other.outside[name][rows])


@pytest.fixture(scope="module")
def before(visits: VisitArrays) -> dict[str, Calibrated]:
    """The table as it is, by claim."""
    return {claim: calibrated(visits, claim) for claim in CLAIMS}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("value", [500.0, np.nan], ids=["another value", "not measured"])
def test_a_visits_own_target_changes_nothing_said_about_it(
    visits: VisitArrays, before: dict[str, Calibrated], claim: ClaimName, value: float
) -> None:
    for number in range(FOLDS):
        theirs = of_fold(visits, number)
        rows = one_of_each(visits, theirs)
        after = calibrated(with_targets(visits, rows, value), claim)
        assert_same(before[claim], after, rows)
        values = [each.estimates.value[~theirs[visits.patient]] for each in (before[claim], after)]
        assert (values[0] != values[1]).any(), "other folds learn from it"
        assert before[claim].weight[rows].std() > 0


def test_the_own_target_reaches_the_patients_other_visits(visits: VisitArrays, before: dict[str, Calibrated]) -> None:
    """The test above would see a leak: a neighbouring visit's estimate does change."""
    rows = one_of_each(visits, of_fold(visits, 0))
    near = np.zeros(len(visits), dtype=bool)
    near[1:] = rows[:-1] & (visits.patient[1:] == visits.patient[:-1])
    values = [before["unmeasured"], calibrated(with_targets(visits, rows, 500.0))]
    changed = np.not_equal(*(each.estimates.value[near & ~rows] for each in values))
    assert changed.mean() > 0.9


def fitted(visits: VisitArrays) -> FittedBest:
    settings = told()
    return fit_best(visits, settings.best, settings.allowed_error, SEED)


def test_the_targets_of_a_fold_change_nothing_in_its_model(visits: VisitArrays) -> None:
    """Patients nobody met, of the same fold, are estimated alike whatever that fold's targets are."""
    new = cohort_with_sites(77, 60, first=5000)
    fold = fold_of(new.patient_key, SEED, FOLDS)
    one = fitted(visits).frozen.estimate(new)
    for number in range(FOLDS):
        theirs = of_fold(visits, number)[visits.patient] & ~np.isnan(visits.target_values)
        other = fitted(with_targets(visits, theirs, 500.0)).frozen.estimate(new)
        same, rest = fold == number, fold != number
        for name in ("value", "risk", "spread"):
            assert getattr(one, name)[same].tobytes() == getattr(other, name)[same].tobytes(), name
        assert (one.value[rest] != other.value[rest]).all()


# --- claim `visits` and the paper's system: what is held out is hidden from everything ---


@pytest.fixture
def roles(cohort_arrays: VisitArrays) -> Roles:
    return draw_roles(cohort_arrays, 0, test_fraction=0.2)


def scrambled(visits: VisitArrays, rows: BoolArray) -> VisitArrays:
    values = visits.target_values.copy()
    values[rows] = np.random.default_rng(9).uniform(100, 200, int(rows.sum()))
    return visits.with_target(values)


def paper_question(visits: VisitArrays, roles: Roles) -> Question:
    settings = make_settings(target="hba1c", tolerance=0.8, fdr=0.2, preset="paper")
    return question_of(visits, settings, roles)


def test_held_out_targets_change_nothing_in_the_papers_system(cohort_arrays: VisitArrays, roles: Roles) -> None:
    hidden = np.isin(roles, (Role.CALIBRATION, Role.TEST))
    settings = PaperSettings(gcn=GcnSettings(epochs=30))
    one, other = (
        fit_paper(paper_question(each, roles).task, settings, 0).estimates
        for each in (cohort_arrays, scrambled(cohort_arrays, hidden))
    )
    for name in ("value", "risk", "spread", "no_evidence"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def test_held_out_targets_change_nothing_in_best_under_the_papers_claim(
    cohort_arrays: VisitArrays, roles: Roles
) -> None:
    hidden = np.isin(roles, (Role.CALIBRATION, Role.TEST))
    settings = make_settings(target="hba1c", tolerance=0.8, fdr=0.2, claim="visits", best={"folds": FOLDS})
    one, other = (
        fit_question(each, question_of(each, settings, roles), settings)[1]
        for each in (cohort_arrays, scrambled(cohort_arrays, hidden))
    )
    for name in ("value", "risk", "spread", "no_evidence"):
        assert getattr(one.estimates, name).tobytes() == getattr(other.estimates, name).tobytes(), name


@pytest.mark.parametrize("role", [Role.VALIDATION, Role.TRAINING])
def test_no_target_decides_an_edge(cohort_arrays: VisitArrays, roles: Roles, role: Role) -> None:
    changed = scrambled(cohort_arrays, roles == role)
    graphs = [
        build_graph(hide(each, roles), PaperSettings().graph, np.random.default_rng(0))
        for each in (cohort_arrays, changed)
    ]
    for relation in ("temporal", "value"):
        one, other = (getattr(graph, relation) for graph in graphs)
        np.testing.assert_array_equal(one.first, other.first)
        np.testing.assert_array_equal(one.second, other.second)
    if role == Role.VALIDATION:
        for name in ("values", "attributes"):
            assert getattr(graphs[0], name).tobytes() == getattr(graphs[1], name).tobytes()
