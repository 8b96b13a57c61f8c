import numpy as np
import pytest
from scipy import stats

from safeimpute.errors import GuaranteeRefused
from safeimpute.selection.cutoff import stored_cutoff
from safeimpute.selection.thresholds import LabelledVisits


def calibration(rng, n_patients, weight=1.0):
    patient = np.repeat(np.arange(n_patients), 3)
    risk = rng.random(len(patient))
    return LabelledVisits(
        patient, risk, np.full(len(patient), weight), n_patients, rng.random(len(patient)) < risk
    )


def test_bound_is_students_over_patients_corrected_for_the_grid():
    rng = np.random.default_rng(0)
    visits, thresholds, alpha = calibration(rng, 200), np.arange(1, 11) / 10, 0.3
    cutoff = stored_cutoff(visits, thresholds, alpha)

    def upper(t):
        x = np.zeros(200)
        np.add.at(x, visits.patient, (visits.risk <= t) * (visits.bad - alpha))
        return x.mean() + stats.t.ppf(1 - 0.05 / 10, 199) * x.std(ddof=1) / np.sqrt(200)

    safe = [t for t in thresholds if upper(t) < 0]
    assert cutoff.risk == pytest.approx(max(safe))
    assert cutoff.bound == pytest.approx(upper(max(safe)))
    assert cutoff.risk > 0.3
    assert cutoff.n_patients == 200


def test_no_cutoff_where_everything_is_bad():
    rng = np.random.default_rng(1)
    visits = calibration(rng, 100)
    always = LabelledVisits(visits.patient, visits.risk, visits.weight, 100, np.ones(300, bool))
    assert stored_cutoff(always, np.arange(1, 11) / 10, 0.2).risk is None


def test_scale_of_the_weights_does_not_matter():
    a = stored_cutoff(calibration(np.random.default_rng(2), 150), np.arange(1, 21) / 20, 0.3)
    b = stored_cutoff(calibration(np.random.default_rng(2), 150, weight=5.0), np.arange(1, 21) / 20, 0.3)
    assert a.risk == b.risk


@pytest.mark.parametrize(("alpha", "needed"), [(0.2, 30), (0.1, 50)])
def test_too_few_patients_are_refused(alpha, needed):
    thresholds = np.array([1.0])
    stored_cutoff(calibration(np.random.default_rng(3), needed), thresholds, alpha)
    with pytest.raises(GuaranteeRefused, match=f"worth {needed} of equal size"):
        stored_cutoff(calibration(np.random.default_rng(3), needed - 1), thresholds, alpha)


def test_one_patient_with_most_visits_is_refused():
    visits = calibration(np.random.default_rng(4), 100)
    heavy = LabelledVisits(
        np.r_[visits.patient, np.zeros(500, int)], np.r_[visits.risk, np.zeros(500)], np.ones(800), 100,
        np.r_[visits.bad, np.zeros(500, bool)],
    )  # fmt: skip
    with pytest.raises(GuaranteeRefused):
        stored_cutoff(heavy, np.arange(1, 11) / 10, 0.2)


def test_a_threshold_resting_on_few_patients_is_not_tried():
    patient = np.repeat(np.arange(100), 3)
    safe = patient < 10
    visits = LabelledVisits(patient, np.where(safe, 0.05, 0.9), np.ones(300), 100, ~safe)
    thresholds = np.array([0.1, 1.0])
    x = np.where(np.arange(100) < 10, -0.6, 0.0)
    assert x.mean() + stats.t.ppf(0.975, 99) * x.std(ddof=1) / 10 < 0
    assert stored_cutoff(visits, thresholds, 0.2).risk is None
