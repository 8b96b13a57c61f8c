"""Which measured values the review page may draw as used."""

import numpy as np
import pytest

from safeimpute.report.run_folder import review_visits
from safeimpute.selection.questions import draw_roles, question_of
from safeimpute.settings import ClaimName, PresetName, make_settings
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import load_pbc
from safeimpute.visits.visits import prepare_visits

PROMISE, TRAINING = "to check the promise", "to stop the training"


@pytest.mark.parametrize(
    ("preset", "claim", "aside"),
    [("best", "unmeasured", set()), ("best", "visits", {PROMISE}), ("paper", "visits", {PROMISE, TRAINING})],
)
def test_a_measured_value_that_was_no_input_is_marked(preset: PresetName, claim: ClaimName, aside: set[str]) -> None:
    visits = prepare_visits(load_pbc().head(400), ColumnChoice("cholesterol"))
    settings = make_settings(target="cholesterol", tolerance="20%", fdr=0.2, preset=preset, claim=claim)
    question = question_of(visits.arrays, settings, draw_roles(visits.arrays, seed=0))
    table = review_visits(visits, np.flatnonzero(question.candidate), question.set_aside)
    assert set(table["set_aside"].drop_nulls()) == aside
    marked = table.filter(table["set_aside"].is_not_null())
    assert marked["lab.cholesterol"].null_count() == 0
    assert (marked["imputation"] == -1).all()
    measured = ~np.isnan(visits.arrays.target_values)
    shown = np.isin(visits.arrays.patient, visits.arrays.patient[question.candidate])
    assert len(marked) == int((measured & ~question.visible & shown).sum())
