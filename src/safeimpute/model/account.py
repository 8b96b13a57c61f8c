"""What a scoring came to; loads nothing heavy, so that whoever waits for one stays small."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Account:
    """What a scoring came to and what it promises, in words and counts."""

    target: str
    promise: str  # empty: no guarantee
    assumption: str
    no_promise: str  # why there is no guarantee; empty where there is one
    visits: int
    patients: int
    released: int
    withheld: dict[str, int] = field(default_factory=dict)  # by reason, most frequent first
    ignored: tuple[str, ...] = ()  # columns the model does not know
    unknown_levels: dict[str, int] = field(default_factory=dict)  # category -> rows with a level never met at fit
    advice: str = ""  # what would help where nothing is released
    earlier: int = 0  # decided on an earlier night, by the night log
    read: tuple[str, ...] = ()  # what reading did to the rows of the file
