"""Rubin's rules: what an analysis of each of several completed tables says, put together (NumPy and SciPy only)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safeimpute.errors import OptionError

Figures = NDArray[np.float64]


@dataclass(frozen=True)
class Pooled:
    """A pooled estimate; every field is a number, or an array where several quantities were pooled at once.

    Attributes
    ----------
    estimate, se : the pooled estimate and its standard error.
    lower, upper : confidence interval.
    df : degrees of freedom of its t distribution (Barnard and Rubin 1999).
    fmi : fraction of information about the quantity that is missing.
    within, between : mean of the variances, and variance of the estimates over the draws.
    draws : how many draws were pooled.
    """

    estimate: Any
    se: Any
    lower: Any
    upper: Any
    df: Any
    fmi: Any
    within: Any
    between: Any
    draws: int


def pool(estimates: ArrayLike, variances: ArrayLike, *, df: float | None = None, confidence: float = 0.95) -> Pooled:
    """Pool the estimates of several completed tables by Rubin's rules.

    Parameters
    ----------
    estimates : array, one row per draw
        The quantity estimated in each completed table; one column per quantity, or a plain list for one.
    variances : array of the same shape
        The squared standard error of each estimate, as if nothing had been missing.
    df : float, optional
        Degrees of freedom the analysis would have with nothing missing (patients minus parameters); without it they
        are taken as infinite.
    confidence : float
        Of the interval.

    Returns
    -------
    Pooled
        Estimate, standard error, interval, degrees of freedom, fraction of missing information.

    Raises
    ------
    OptionError
        Fewer than two draws, shapes that differ, a value that is not finite, or a negative variance.
    """
    from scipy.stats import t  # slow to load

    each, variance = _checked(estimates, variances, df, confidence)
    draws = len(each)
    estimate, within, between = each.mean(axis=0), variance.mean(axis=0), each.var(axis=0, ddof=1)
    added = (1 + 1 / draws) * between
    total = within + added
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(total > 0, added / total, 0.0)
        freedom = _freedom(share, draws, df)
        ratio = np.where(within > 0, added / within, np.where(added > 0, np.inf, 0.0))
        missing = np.where(np.isinf(ratio), 1.0, (ratio + 2 / (freedom + 3)) / (ratio + 1))
    missing = np.where(added > 0, missing, 0.0)
    se = np.sqrt(total)
    half = t.ppf(0.5 + confidence / 2, freedom) * se
    return Pooled(
        estimate=_plain(estimate),
        se=_plain(se),
        lower=_plain(estimate - half),
        upper=_plain(estimate + half),
        df=_plain(freedom),
        fmi=_plain(missing),
        within=_plain(within),
        between=_plain(between),
        draws=draws,
    )


def _checked(
    estimates: ArrayLike, variances: ArrayLike, df: float | None, confidence: float
) -> tuple[Figures, Figures]:
    each, variance = (np.asarray(given, dtype=np.float64) for given in (estimates, variances))
    if each.shape != variance.shape or each.ndim not in (1, 2):
        raise OptionError(
            f"pool needs one variance per estimate: estimates have shape {each.shape}, variances {variance.shape}."
        )
    if len(each) < 2:
        raise OptionError(f"pool needs at least two draws; there are {len(each)}. Twenty are usual.")
    if not (np.isfinite(each).all() and np.isfinite(variance).all()):
        raise OptionError("pool was given a value that is not finite. Leave out analyses that failed.")
    if (variance < 0).any():
        raise OptionError("pool was given a negative variance. Give squared standard errors.")
    if not 0 < confidence < 1:
        raise OptionError(f"confidence must lie between 0 and 1, not {confidence:g}.")
    if df is not None and not df > 0:
        raise OptionError(f"df must be positive, not {df:g}: patients minus parameters.")
    return each, variance


def _freedom(share: Figures, draws: int, complete: float | None) -> Figures:
    """Barnard and Rubin's degrees of freedom; `share` of the total variance comes from what is missing."""
    from_draws = np.where(share > 0, (draws - 1) / np.maximum(share, 1e-300) ** 2, np.inf)
    if complete is None or np.isinf(complete):
        return from_draws
    observed = (complete + 1) / (complete + 3) * complete * (1 - share)
    observed = np.maximum(observed, 1e-9)
    return np.asarray(1 / (1 / from_draws + 1 / observed))


def _plain(figures: Figures) -> Any:
    return float(figures) if np.ndim(figures) == 0 else figures
