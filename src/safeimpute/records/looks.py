"""A run as a look at its visits: what was chosen before it, and so cannot be chosen after it under a promise."""

from dataclasses import fields
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
        f"fitted with {_fit(settings)}": bool(_fit(settings)),
    }
    return " ".join([settings.promise, *(words for words, chosen in more.items() if chosen)])


def _fit(settings: Settings) -> str:
    """What the system was told otherwise than usual, such as a light effort."""
    told = settings.paper if settings.preset == "paper" else settings.best.resolved(several=False)
    usual = (
        type(settings.paper)()
        if settings.preset == "paper"
        else type(settings.best)().resolved(several=False)
    )
    names = [each.name for each in fields(told) if getattr(told, each.name) != getattr(usual, each.name)]
    return ", ".join(f"{name} {getattr(told, name)}" for name in names)
