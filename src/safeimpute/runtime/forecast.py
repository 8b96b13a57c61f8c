"""About how long a fit takes, before it starts: a line through measured fits, good to a factor of two or so."""

from safeimpute.runtime.threads import thread_count

# Processor seconds of a fit in five folds: 2,000 to 198,449 visits took 7 to 410, more where there are more labs.
AT_LEAST, PER_VISIT, FOLDS = 5.0, 0.0022, 5


def fit_seconds(visits: int, folds: int, pace: float, threads: int | None = None) -> float:
    """Seconds by the clock, on a machine that does nothing else."""
    threads = threads or thread_count()
    return (AT_LEAST + PER_VISIT * visits) * folds / FOLDS / pace / min(threads, folds)


def in_words(seconds: float) -> str:
    """A duration, no finer than it is known."""
    if seconds < 90:
        return f"{max(round(seconds / 10) * 10, 5):d} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
