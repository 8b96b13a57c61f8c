"""A run as a look at its visits: what was chosen before it, and so cannot be chosen after it under a promise."""

from datetime import UTC, datetime

from safeimpute.runtime.looks import Look
from safeimpute.settings import Settings


def look_of(settings: Settings, fingerprint: str, run: str, preset: str | None = None) -> Look:
    """A run with these settings as a look at the visits of a fingerprint; `preset` names another tool's values."""
    return Look(
        fingerprint=fingerprint,
        target=settings.target,
        tolerance=settings.tolerance,
        fdr=settings.fdr,
        seed=settings.random_state,
        claim=settings.claim,
        preset=preset or settings.preset,
        promise=_promise(settings),
        confidence=settings.confidence,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        run=run,
    )


def _promise(settings: Settings) -> str:
    """What else was chosen about the promise: a group or a cap picked after looking is a second look too."""
    more = {
        f"over {settings.labs}": settings.over != "labs",
        f"in groups {settings.groups}": bool(settings.groups),
        f"up to risk {settings.risk_cap}": settings.risk_cap is not None,
        f"since {settings.since}": settings.since is not None,
        "from the past only": settings.past_only and settings.claim != "later",
    }
    return " ".join([settings.promise, *(words for words, chosen in more.items() if chosen)])
