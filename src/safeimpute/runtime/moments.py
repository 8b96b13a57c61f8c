"""A moment as a user types it: a date, a timestamp or a number of days."""

from typing import Any

from safeimpute.errors import OptionError


def read_moment(given: Any) -> Any:
    """A number of days stays one, however it was typed; a date is kept as it is written, year first."""
    from datetime import date, datetime

    if isinstance(given, date):
        return given.isoformat()
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError:
            datetime.fromisoformat(given)
    return given


def days_of(moment: float | str) -> float:
    """A number of days as it is, a date or timestamp as days since 1970; anything else is an error."""
    from datetime import UTC, datetime

    try:
        read = read_moment(moment)
        if not isinstance(read, str):
            return float(read)
        then = datetime.fromisoformat(read)
    except ValueError:
        raise OptionError(f"{moment!r} is neither a date such as 2026-01-31 nor a number of days.") from None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() / 86_400
