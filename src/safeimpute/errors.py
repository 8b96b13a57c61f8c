"""The few errors a user can meet; each says what was wrong, where, and the next step.

Messages carry column names, rules and counts, never a patient's value or identifier.
"""


class SafeImputeError(Exception):
    """Base of every error raised on purpose; the command line exits with `exit_code`."""

    exit_code = 1


class InputError(SafeImputeError):
    """What the user gave (a table, an option, a file) cannot be used as it is."""

    exit_code = 2


class VisitsError(InputError):
    """The visits table breaks a rule: names the column, the rule, how many rows, and the remedy."""


class ImputedError(InputError):
    """What another tool filled in does not fit the visits it was given."""


class SourceError(InputError):
    """A clinical source (database, folder, bundle) cannot be read as published."""


class OptionError(InputError):
    """An option or parameter has no usable value."""


class GuaranteeRefused(InputError):
    """A promise was asked for outside the conditions under which it can be kept."""


class ModelFolderError(InputError):
    """A saved model is damaged, foreign, or from a newer version."""


class MissingExtra(InputError):
    """An optional part is not installed; the message is the line that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part. Install it with: pip install 'safeimpute[{extra}]'")


class NotFittedError(SafeImputeError, ValueError):
    """A fitted imputer was needed: call `fit` first. A ValueError too, as scikit-learn's is."""

    exit_code = 2
