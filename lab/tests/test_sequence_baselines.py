"""Sequence baselines: what each must recover, that none hears its own answer, and records that are hard to cut."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from safeimpute.learning.roles import Role, Task, hide, split_visits
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute_lab.methods import csdi, sequences, transformer
from safeimpute_lab.methods.brits import Brits, BritsNetwork
from safeimpute_lab.methods.csdi import Csdi, CsdiNetwork
from safeimpute_lab.methods.grin import Direction, Grin, GrinNetwork
from safeimpute_lab.methods.grud import GruD, GruDNetwork
from safeimpute_lab.methods.lstm import Lstm, LstmNetwork
from safeimpute_lab.methods.saits import Saits, SaitsNetwork
from safeimpute_lab.methods.sequences import SequenceTable, fit_units, predicted_targets
from safeimpute_lab.methods.transformer import Transformer, TransformerNetwork
from safeimpute_lab.registry import Imputer

pytestmark = pytest.mark.full  # every method is fitted in the contract suite of the fast run

METHODS: dict[str, Callable[[float], Imputer]] = {
    "lstm": Lstm,
    "grud": GruD,
    "brits": Brits,
    "grin": Grin,
    "transformer": Transformer,
    "saits": Saits,
    "csdi": Csdi,
}
NETWORKS: dict[str, Callable[[sequences.Shape], sequences.SequenceNetwork]] = {
    "lstm": LstmNetwork,
    "grud": GruDNetwork,
    "brits": BritsNetwork,
    "grin": GrinNetwork,
    "transformer": TransformerNetwork,
    "saits": SaitsNetwork,
    "csdi": lambda shape: CsdiNetwork(shape, samples=2),
}
every_method = pytest.mark.parametrize("name", METHODS)


def visits_of(patient: IntArray, time: FloatArray, labs: FloatArray) -> VisitArrays:
    keys = np.arange(len(patient), dtype=np.uint64)
    return VisitArrays(
        patient=patient,
        time=time,
        labs=labs,
        lab_names=tuple(f"lab{number}" for number in range(labs.shape[1])),
        target=0,
        attributes=np.zeros((len(patient), 0)),
        attribute_names=(),
        patient_key=patient.astype(np.uint64),
        visit_key=keys,
    )


def cohort(counts: list[int], labs: int, seed: int = 0) -> VisitArrays:
    """Noise at irregular times, a fifth of it missing."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(len(counts)), counts)
    time = np.cumsum(rng.exponential(60.0, len(patient)) + 1.0)
    values = rng.normal(size=(len(patient), labs))
    values[rng.random(values.shape) < 0.2] = np.nan
    return visits_of(patient, time, values)


def autoregression(patients: int, visits: int, rng: np.random.Generator) -> VisitArrays:
    """x_t = 0.9 x_{t-1} + noise, variance 1, at equal steps, and a second lab of pure noise."""
    course = np.empty((patients, visits))
    course[:, 0] = rng.normal(size=patients)
    for visit in range(1, visits):
        course[:, visit] = 0.9 * course[:, visit - 1] + np.sqrt(1 - 0.81) * rng.normal(size=patients)
    labs = np.column_stack([course.ravel(), rng.normal(size=patients * visits)])
    return visits_of(np.repeat(np.arange(patients), visits), np.tile(np.arange(visits) * 30.0, patients), labs)


def level_and_lab(patients: int, visits: int, rng: np.random.Generator) -> VisitArrays:
    """A patient's own level, which only other visits tell, plus a second lab, which only this visit tells."""
    patient = np.repeat(np.arange(patients), visits)
    lab = rng.normal(size=len(patient))
    target = rng.normal(size=patients)[patient] + lab + 0.2 * rng.normal(size=len(patient))
    return visits_of(patient, np.tile(np.arange(visits) * 30.0, patients), np.column_stack([target, lab]))


def task_of(arrays: VisitArrays, seed: int = 1) -> tuple[Task, BoolArray]:
    roles = split_visits(~np.isnan(arrays.target_values), np.random.default_rng(seed), test_fraction=0.2)
    return hide(arrays, roles), roles == Role.TEST


def test_error(method: Imputer, arrays: VisitArrays) -> tuple[float, float]:
    """Mean absolute error at hidden targets: of the method, and of the mean."""
    task, tested = task_of(arrays)
    truth = arrays.target_values[tested]
    value = method.fit(task, np.random.default_rng(2)).impute(task).value[tested]
    return float(np.abs(value - truth).mean()), float(np.abs(truth - np.nanmean(arrays.target_values)).mean())


test_error.__test__ = False  # type: ignore[attr-defined]


def oracle_of_autoregression(arrays: VisitArrays, known_from: str) -> float:
    """Error at hidden targets of the Gaussian conditional mean given the visible ones: all of them, the earlier ones,
    or the average of what the earlier and what the later ones say."""
    task, tested = task_of(arrays)
    errors = []
    for row in np.flatnonzero(tested):
        rows = np.flatnonzero((arrays.patient == arrays.patient[row]) & task.training)
        before, after = rows[rows < row], rows[rows > row]
        sides = {"both sides": [rows], "the past": [before], "two averaged": [before, after]}[known_from]
        expected = np.mean([expected_in_autoregression(arrays, int(row), known) for known in sides])
        errors.append(abs(arrays.labs[row, 0] - expected))
    return float(np.mean(errors))


def expected_in_autoregression(arrays: VisitArrays, row: int, known: IntArray) -> float:
    covariance = 0.9 ** np.abs(known[:, None] - known)
    return float(np.linalg.solve(covariance, 0.9 ** np.abs(known - row)) @ arrays.labs[known, 0])


@pytest.mark.parametrize(
    ("name", "effort", "known_from"),
    [
        ("lstm", 0.07, "both sides"),
        ("grud", 0.1, "the past"),
        pytest.param("brits", 0.1, "two averaged", marks=pytest.mark.full),
        pytest.param("grin", 0.1, "both sides", marks=pytest.mark.full),
    ],
)
def test_recurrent_networks_recover_an_autoregression(name: str, effort: float, known_from: str) -> None:
    arrays = autoregression(300, 10, np.random.default_rng(3))
    error, of_the_mean = test_error(METHODS[name](effort), arrays)
    assert error < 0.7 * of_the_mean
    assert error < 1.2 * oracle_of_autoregression(arrays, known_from)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "effort", "share"), [("transformer", 0.1, 0.4), ("saits", 0.2, 0.4), ("csdi", 0.2, 0.6)]
)
def test_attention_recovers_a_level_and_a_lab(name: str, effort: float, share: float) -> None:
    """Knowing only the level or only the lab leaves 0.71 of the mean's error; knowing both, 0.14."""
    arrays = level_and_lab(200, 6, np.random.default_rng(4))
    error, of_the_mean = test_error(METHODS[name](effort), arrays)
    assert error < share * of_the_mean


@every_method
def test_no_visit_hears_its_own_target(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every visible target changed in turn: the value imputed at that visit stays as it was."""
    monkeypatch.setattr(sequences, "FAR", 1e9)  # an untrained sampler strays far; clipping would hide a leak
    monkeypatch.setattr(csdi, "STEPS", 3)
    arrays = cohort([1, 5, 9], labs=3)
    units = fit_units(Task(arrays, np.full(len(arrays), np.nan)))
    torch.manual_seed(0)
    network = NETWORKS[name](SequenceTable(arrays, units, "cpu").shape)
    with torch.no_grad():
        for parameter in network.parameters():  # some start at zero and would hide a leak
            parameter.add_(0.05 * torch.randn_like(parameter))

    def imputed(visits: VisitArrays) -> FloatArray:
        torch.manual_seed(1)
        return predicted_targets(network, SequenceTable(visits, units, "cpu")).numpy()

    before, moved = imputed(arrays), 0
    for row in np.flatnonzero(~np.isnan(arrays.target_values)):
        target = arrays.target_values.copy()
        target[row] += 1.0
        after = imputed(arrays.with_target(target))
        np.testing.assert_allclose(after[row], before[row], rtol=1e-5, atol=1e-6)
        moved += int(np.abs(after - before).max() > 1e-3)
    assert moved > 5  # and it does reach the patient's other visits


def test_grin_hears_a_column_from_the_others_alone() -> None:
    """A visible value moves what is said of other columns at its visit, and of itself only at later ones."""
    arrays = cohort([7], labs=3)
    table = SequenceTable(arrays, fit_units(Task(arrays, np.full(len(arrays), np.nan))), "cpu")
    torch.manual_seed(0)
    one = Direction(table.shape.columns)
    batch = table.batch(torch.arange(1))
    place = (0, 3, 1)
    seen = batch.seen.clone()
    seen[place] = True
    moved = batch.values.clone()
    moved[place] += 2.0
    with torch.no_grad():
        before = one(replace(batch, seen=seen))
        after = one(replace(batch, seen=seen, values=moved))
    for stage in (0, 1):
        apart = (after[stage] - before[stage]).abs()[0]
        assert apart[3, 1] == 0
        assert float(apart[:3].max()) == 0
        assert float(apart[4:, 1].max()) > 0
    assert float((after[1] - before[1]).abs()[0, 3, 0]) > 0


@pytest.mark.parametrize("name", [name for name in METHODS if name != "csdi"])
def test_padding_and_company_change_nothing(name: str) -> None:
    """A patient is imputed alike alone and beside a longer record; for the sampler, see the next test."""
    arrays = cohort([4, 30], labs=3)
    units = fit_units(Task(arrays, np.full(len(arrays), np.nan)))
    torch.manual_seed(0)
    network = NETWORKS[name](SequenceTable(arrays, units, "cpu").shape)
    together = predicted_targets(network, SequenceTable(arrays, units, "cpu"))[:4]
    alone = predicted_targets(network, SequenceTable(arrays.take(arrays.patient == 0), units, "cpu"))
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_padded_noise_does_not_reach_a_record() -> None:
    """CSDI's predicted noise at a short record is the same whatever stands in the padding behind it."""
    arrays = cohort([4, 9], labs=3)
    table = SequenceTable(arrays, fit_units(Task(arrays, np.full(len(arrays), np.nan))), "cpu")
    torch.manual_seed(0)
    network = CsdiNetwork(table.shape, samples=1).eval()
    torch.nn.init.normal_(network.read[2].weight)  # type: ignore[arg-type]
    batch = table.batch(torch.arange(2))
    noisy = torch.randn_like(batch.values)
    other = noisy.clone()
    other[0, 4:] += 5.0
    step = torch.tensor([7])
    with torch.no_grad():
        sides = network.side_information(batch)
        one, two = (network.predicted_noise(each, batch, sides, step)[0, :4] for each in (noisy, other))
    torch.testing.assert_close(one, two)


@every_method
@pytest.mark.parametrize("longest", [150, pytest.param(600, marks=pytest.mark.full)])
def test_hard_records_get_finite_values_and_same_seed_same_bytes(
    name: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformer, "INNER", 32)  # published sizes take minutes on records this long
    monkeypatch.setattr(csdi, "STEPS", 3)
    arrays = cohort([1] * 5 + [longest] + [3] * 5, labs=3)
    labs = arrays.labs.copy()
    labs[:, 1], labs[:, 2] = np.nan, 7.0
    task, _ = task_of(replace(arrays, labs=labs))
    values = [METHODS[name](0.001).fit(task, np.random.default_rng(5)).impute(task).value for _ in "ab"]
    assert np.isfinite(values[0]).all()
    assert values[0].shape == (len(arrays),)
    assert values[0].tobytes() == values[1].tobytes()


@every_method
def test_a_target_with_no_other_lab(name: str) -> None:
    task, _ = task_of(cohort([1, 2, 8, 5, 1], labs=1))
    assert np.isfinite(METHODS[name](0.001).fit(task, np.random.default_rng(5)).impute(task).value).all()


@pytest.mark.parametrize("count", [1, 2, 16, 127, 128, 129, 144, 145, 240, 241, 600])
def test_windows_answer_for_every_visit_once_and_see_both_sides(count: int) -> None:
    patient = np.repeat([0, 1, 2], [3, count, 1])
    windows = sequences.cut_into_windows(patient)
    answered = np.concatenate([np.arange(start + first, start + end) for start, _, first, end in windows])
    np.testing.assert_array_equal(np.sort(answered), np.arange(len(patient)))
    assert (windows[:, 1] <= sequences.WINDOW).all()
    for start, length, first, end in windows[(windows[:, 0] >= 3) & (windows[:, 0] < 3 + count)]:
        assert first >= sequences.OVERLAP // 2 or start == 3
        assert length - end >= sequences.OVERLAP // 2 or start + length == 3 + count


def test_gaps_and_last_values_follow_their_definition() -> None:
    arrays = cohort([6, 9], labs=3, seed=8)
    table = SequenceTable(arrays, fit_units(Task(arrays, np.full(len(arrays), np.nan))), "cpu")
    for batch in (table.batch(torch.arange(2)), table.batch(torch.arange(2)).backwards()):
        gap, last = sequences.since_seen(batch), sequences.last_seen(batch)
        for window, visit, column in np.ndindex(*batch.seen.shape):
            if visit >= batch.length[window]:
                continue
            before = [at for at in range(visit) if batch.seen[window, at, column]]
            since = batch.time[window, before[-1]] if before else 0.0
            value = batch.values[window, before[-1], column] if before else 0.0
            assert gap[window, visit, column] == pytest.approx(float(batch.time[window, visit] - since), abs=1e-4)
            assert last[window, visit, column] == pytest.approx(float(value))


def test_time_runs_forwards_when_a_record_is_turned_round() -> None:
    arrays = cohort([6, 9], labs=2)
    table = SequenceTable(arrays, fit_units(Task(arrays, np.full(len(arrays), np.nan))), "cpu")
    batch = table.batch(torch.arange(2))
    turned = batch.backwards()
    torch.testing.assert_close(turned.backwards().values, batch.values)
    torch.testing.assert_close(batch.mirror(batch.mirror(batch.values)), batch.values)
    assert (torch.diff(turned.time, dim=1)[turned.there[:, 1:]] >= 0).all()
    np.testing.assert_array_equal(turned.row[0, :6], np.arange(6)[::-1])


def test_training_goes_back_to_the_best_look() -> None:
    """Validation targets that contradict the training targets: the first look is the best and must be kept."""
    arrays = level_and_lab(40, 5, np.random.default_rng(6))
    task, _ = task_of(arrays)
    against = Task(task.visits, -task.validation_target)
    short = Lstm(effort=0.001)  # one look
    short.training = replace(short.training, epochs=1_000, patience=1, look_every=1)
    longer = Lstm(effort=0.001)
    longer.training = replace(longer.training, epochs=1_000, patience=5, look_every=1)
    one, five = (each.fit(against, np.random.default_rng(7)).impute(task).value for each in (short, longer))
    assert np.abs(one - five).max() < 0.2  # five more steps in the wrong direction were undone


def test_without_validation_visits_training_ends_after_the_patience() -> None:
    arrays = level_and_lab(20, 4, np.random.default_rng(6))
    task, _ = task_of(arrays)
    blind = Task(task.visits, np.full(len(arrays), np.nan))
    assert np.isfinite(Lstm(effort=0.01).fit(blind, np.random.default_rng(0)).impute(blind).value).all()
