"""Methods compared over splits: ranks, and a paired test that allows for splits sharing their visits."""

from collections.abc import Mapping, Sequence

import numpy as np


def mean_ranks(errors: Mapping[str, Mapping[int, float]], seeds: Sequence[int]) -> dict[str, float | None]:
    """Mean over splits of each method's rank (1 = smallest error; ties share the mean of their ranks).

    Only methods that finished every split are ranked: a rank over fewer splits would not compare.
    """
    from scipy.stats import rankdata

    complete = [name for name, found in errors.items() if all(seed in found for seed in seeds)]
    ranks: dict[str, float | None] = dict.fromkeys(errors)
    if complete:
        table = np.array([[errors[name][seed] for name in complete] for seed in seeds])
        means = rankdata(table, axis=1).mean(axis=0)
        ranks.update(zip(complete, means.tolist(), strict=True))
    return ranks


def corrected_p_value(differences: Sequence[float], test_to_training: float) -> float | None:
    """Two-sided p-value of Nadeau and Bengio's t-test for the mean of differences over random splits.

    Splits overlap, so their variance counts (1 / J + n_test / n_training) times instead of 1 / J. None below two
    splits; 1 where every difference is nought.
    """
    from scipy.stats import t

    count = len(differences)
    if count < 2:
        return None
    mean, variance = float(np.mean(differences)), float(np.var(differences, ddof=1))
    if variance == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    statistic = mean / np.sqrt((1 / count + test_to_training) * variance)
    return float(2 * t.sf(abs(statistic), count - 1))
