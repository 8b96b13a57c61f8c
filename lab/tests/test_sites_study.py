"""Eight drawn hospitals of different sizes, measuring and error rates: what is released, over all and in each."""

import numpy as np
import pytest

from safeimpute_lab.studies.sites import ALPHA, HOSPITALS, say, study


def test_one_repetition_of_three_hospitals(capsys: pytest.CaptureFixture[str]) -> None:
    found = study(2, "covariate", 1, HOSPITALS[2:5])
    say(found, HOSPITALS[2:5])
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(found)


@pytest.mark.full
def test_the_level_holds_over_all_hospitals_and_withholding_or_noise_never_release_more() -> None:
    found = {name: np.array(rows) for name, rows in study(60, "covariate", 4).items()}
    for name, rows in found.items():
        share = rows[:, 1].sum() / max(rows[:, 0].sum(), 1e-9)
        error = np.std(rows[:, 1] - share * rows[:, 0]) / np.sqrt(len(rows)) / max(rows[:, 0].mean(), 1e-9)
        assert share <= ALPHA + 3 * error, name
    for name, rows in found.items():
        if name.startswith("joined, "):
            exact = found["joined, confident" if name.endswith("confident") else "joined"]
            assert np.mean(rows[:, -1] > exact[:, -1]) <= 0.02, name
    own = found["each its own"]
    of, risky = own[:, 3 : 3 + len(HOSPITALS)], own[:, 3 + len(HOSPITALS) : 3 + 2 * len(HOSPITALS)]
    assert (risky.sum(axis=0) <= (ALPHA + 0.02) * of.sum(axis=0)).all(), "each hospital by its own cut-off"
