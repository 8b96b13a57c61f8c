"""The joint course: the Gaussian conditional mean of all labs, and covariances found again."""

from dataclasses import replace

import numpy as np
import pytest

from safeimpute.learning.best.joint import Joint, Table, predict_joint
from safeimpute.learning.best.joint_fit import fit_joint
from safeimpute.machine.state import from_state, state_of
from safeimpute.visits.arrays import FloatArray, around, nearest_own_visits, take


def table_of(patient: np.ndarray, time: FloatArray, values: FloatArray, target: int = 0) -> Table:
    """Labs around every visit, without attributes."""
    other = np.delete(np.arange(values.shape[1]), target)
    near = [around(patient, time, values[:, lab]) for lab in other]
    last, since, following, until = (np.stack(each, axis=1) for each in zip(*near, strict=True))
    own = nearest_own_visits(patient, ~np.isnan(values[:, target]), 4, 4)
    ones = np.ones((len(time), 1))
    return Table(
        values=values,
        person=ones,
        design=ones,
        patient=patient,
        time=time,
        target=target,
        lab=np.r_[other, other, other, np.full(8, target)],
        told=np.hstack([values[:, other], last, following]),
        away=np.hstack([np.zeros_like(last), -since, until, take(time, own) - time[:, None]]),
        own=own,
    )


def a_joint(rng: np.random.Generator, labs: int = 3) -> Joint:
    def covariance(size: float) -> FloatArray:
        root = rng.standard_normal((labs, labs))
        return np.asarray(size * (root @ root.T / labs + 0.2 * np.eye(labs)))

    means, drifts = 0.3 * rng.standard_normal((1, labs)), np.stack([covariance(0.3), covariance(0.2)])
    return Joint(means, covariance(0.5), drifts, np.array([30.0, 300.0]), covariance(0.2), np.array([0.1]), 0.0)


def simulated(joint: Joint, patients: int, each: int, rng: np.random.Generator, patient_scale: float = 0.0) -> Table:
    """Records drawn from a joint course, some values missing; the target's variance around its level is log-normal."""
    labs, values, times = joint.levels.shape[0], [], []
    for _ in range(patients):
        size = np.ones(labs)
        size[0] = np.exp(0.5 * (patient_scale * rng.standard_normal() - patient_scale**2 / 2))
        scaled = np.outer(size, size)
        time = np.cumsum(rng.exponential(40.0, each) + 1.0)
        gap = np.abs(time[:, None] - time)
        cov = np.kron(np.ones((each, each)), joint.levels) + np.kron(np.eye(each), scaled * joint.visits)
        for drift, memory in zip(joint.drifts, joint.memory_days, strict=True):
            cov += np.kron(np.exp(-gap / memory), scaled * drift)
        drawn = np.linalg.cholesky(cov) @ rng.standard_normal(each * labs)
        values.append(drawn.reshape(each, labs) + joint.means)
        times.append(time)
    found = np.concatenate(values)
    found[rng.random(found.shape) < 0.3] = np.nan
    return table_of(np.repeat(np.arange(patients), each), np.concatenate(times), found)


def test_the_joint_course_is_the_gaussian_conditional_mean_and_deviation() -> None:
    rng = np.random.default_rng(2)
    joint = a_joint(rng)
    table = simulated(joint, 3, 5, rng)
    predicted = predict_joint(joint, table, np.arange(15))
    base = joint.means[0] + np.array([0.1, 0.0, 0.0])
    for visit in range(15):
        told = np.flatnonzero(~np.isnan(np.hstack([table.told, take(table.values[:, 0], table.own)])[visit]))
        lab, away = table.lab[told], table.away[visit, told]
        value = np.hstack([table.told, take(table.values[:, 0], table.own)])[visit, told] - base[lab]

        def covariance(one: np.ndarray, other: np.ndarray, gap: FloatArray) -> FloatArray:
            found = joint.levels[one, other] + joint.visits[one, other] * (gap == 0)
            for drift, memory in zip(joint.drifts, joint.memory_days, strict=True):
                found = found + drift[one, other] * np.exp(-gap / memory)
            return np.asarray(found)

        among = covariance(lab[:, None], lab[None, :], np.abs(away[:, None] - away))
        to_visit = covariance(np.zeros_like(lab), lab, np.abs(away))
        total = joint.levels[0, 0] + joint.visits[0, 0] + joint.drifts[:, 0, 0].sum()
        left = total - to_visit @ np.linalg.solve(among, to_visit)
        mean = base[0] + to_visit @ np.linalg.solve(among, value)
        assert predicted[visit] == pytest.approx([mean, np.sqrt(left), mean])


def test_a_visit_is_predicted_without_its_own_target_and_without_other_patients() -> None:
    rng = np.random.default_rng(4)
    joint = a_joint(rng)
    table = simulated(joint, 20, 5, rng)
    before = predict_joint(joint, table, np.arange(100))
    for row in np.flatnonzero(~np.isnan(table.values[:, 0]))[::7]:
        for other in (9.0, np.nan):
            values = table.values.copy()
            values[row, 0] = other
            after = predict_joint(joint, table_of(table.patient, table.time, values), np.array([row]))
            assert after.tobytes() == before[row : row + 1].tobytes()
    some = slice(40, 60)
    alone = table_of(table.patient[some] - 8, table.time[some], table.values[some])
    assert predict_joint(joint, alone, np.arange(20)).tobytes() == before[some].tobytes()


def test_a_visit_alone_is_predicted_as_among_others() -> None:
    """To the byte, long records and patients' own scales included: a cluster's batches may hold one visit."""
    rng = np.random.default_rng(5)
    joint = replace(a_joint(rng), patient_scale=0.8)
    table = simulated(joint, 40, 20, rng)
    together = predict_joint(joint, table, np.arange(800))
    alone = np.concatenate([predict_joint(joint, table, np.array([row])) for row in range(800)])
    assert alone.tobytes() == together.tobytes()


def test_what_is_learnt_predicts_nearly_as_well_as_the_truth() -> None:
    rng = np.random.default_rng(6)
    joint = replace(a_joint(rng), coefficients=np.zeros(1))
    learnt, fresh = fit_joint(simulated(joint, 300, 6, rng), rng), simulated(joint, 300, 6, rng)
    rows = np.flatnonzero(~np.isnan(fresh.values[:, 0]))
    truth = fresh.values[rows, 0]
    error, least = (np.mean((predict_joint(each, fresh, rows)[:, 0] - truth) ** 2) for each in (learnt, joint))
    assert error < 1.1 * least
    assert error < 0.8 * np.var(truth)


def test_a_patients_scale_is_integrated_out() -> None:
    """Against the sum over many scales of the patient, each weighed by the density of the patient's own targets."""
    rng = np.random.default_rng(3)
    joint = replace(a_joint(rng), patient_scale=1.0)
    table = simulated(joint, 4, 6, rng, patient_scale=1.0)
    rows = np.arange(24)
    predicted = predict_joint(joint, table, rows)
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    each, fits = [], []
    for node in nodes:
        size = np.ones(3)
        size[0] = np.exp(0.5 * (node - 0.5))
        scaled = np.outer(size, size)
        steady = replace(joint, drifts=joint.drifts * scaled, visits=joint.visits * scaled, patient_scale=0.0)
        each.append(predict_joint(steady, table, rows))
        fits.append([_log_density(steady, table, row) for row in range(24)])
    weight = np.exp(np.array(fits) - np.max(fits, axis=0)) * weights[:, None]
    weight /= weight.sum(axis=0)
    mean, deviation = np.stack(each)[:, :, 0], np.stack(each)[:, :, 1]
    middle = (weight * mean).sum(axis=0)
    spread = np.sqrt((weight * (deviation**2 + (mean - middle) ** 2)).sum(axis=0))
    assert predicted[:, 0] == pytest.approx(middle, abs=0.03)
    assert predicted[:, 1] == pytest.approx(spread, rel=0.1)
    assert np.abs(predicted[:, 0] - predicted[:, 2]).max() > 0.05  # it matters


def _log_density(joint: Joint, table: Table, row: int) -> float:
    """Of everything a visit is told by."""
    values = np.hstack([table.told, take(table.values[:, 0], table.own)])[row]
    told = np.flatnonzero(~np.isnan(values))
    lab, away = table.lab[told], table.away[row, told]
    base = joint.means[0] + np.array([0.1, 0.0, 0.0])
    among = joint.covariance((lab[:, None], lab[None, :]), np.abs(away[:, None] - away))
    rest = values[told] - base[lab]
    return float(-0.5 * rest @ np.linalg.solve(among, rest) - 0.5 * np.linalg.slogdet(among)[1])


@pytest.mark.parametrize("patient_scale", [0.0, 1.3])
def test_patients_of_different_scale_are_found(patient_scale: float) -> None:
    rng = np.random.default_rng(7)
    joint = replace(a_joint(rng), coefficients=np.zeros(1))
    learnt = fit_joint(simulated(joint, 400, 8, rng, patient_scale), rng)
    assert (learnt.patient_scale > 0.0) == (patient_scale > 0.0)
    if patient_scale:
        fresh = simulated(joint, 400, 8, rng, patient_scale)
        rows = np.flatnonzero(~np.isnan(fresh.values[:, 0]))
        found, truth = predict_joint(learnt, fresh, rows), fresh.values[rows, 0]
        told, alike = np.abs(found[:, 0] - truth), np.abs(found[:, 2] - truth)
        assert told.mean() < alike.mean()


def test_a_stored_joint_course_is_the_same() -> None:
    joint = a_joint(np.random.default_rng(1))
    arrays, plain = state_of(joint)
    again = from_state(Joint, arrays, plain)
    for name, each in vars(joint).items():
        assert np.array_equal(each, getattr(again, name))
