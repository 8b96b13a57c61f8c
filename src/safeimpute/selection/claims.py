"""What a release promises: to whom, where, under which assumption; in words and as two switches."""

from dataclasses import dataclass

from safeimpute.errors import OptionError
from safeimpute.selection.cutoff import Cutoff

NAMES = ("visits", "patients", "unmeasured", "patients,unmeasured")


@dataclass(frozen=True)
class Claim:
    """Who: further visits of the table's patients, or patients the training never saw. Where: measured or not."""

    new_patients: bool = False
    unmeasured: bool = False

    @property
    def name(self) -> str:
        parts = [
            name
            for name, there in (("patients", self.new_patients), ("unmeasured", self.unmeasured))
            if there
        ]
        return ",".join(parts) or "visits"


def parse_claim(text: str) -> Claim:
    """Read a claim by name; the order of its parts does not matter."""
    parts = {part.strip() for part in text.split(",")} - {""}
    if not parts or parts - {"visits", "patients", "unmeasured"} or {"visits", "patients"} <= parts:
        raise OptionError(f"claim {text!r} is not known. Claims: {'; '.join(NAMES)}.")
    return Claim(new_patients="patients" in parts, unmeasured="unmeasured" in parts)


def promise_in_words(claim: Claim, target: str, tolerance: str, alpha: float) -> dict[str, str]:
    """The promise, its assumption and its limits, in plain sentences."""
    who = "patients the training never saw" if claim.new_patients else "the patients in this table"
    where = "where nobody measured it" if claim.unmeasured else "like those where it was measured"
    return {
        "promise": (
            f"Among the {target} values released for visits of {who}, {where}, the expected share that is off by "
            f"{tolerance} or more is at most {100 * alpha:g} %."
        ),
        "assumption": " ".join(_assumptions(claim, target)),
        "limits": (
            "The share is an average over repetitions: a single batch may exceed it. It covers all released values "
            "together, not a subset picked later, and it is not promised for every subgroup."
        ),
    }


def cutoff_in_words(cutoff: Cutoff, alpha: float) -> str:
    """The long-run promise of a stored cut-off and its confidence."""
    confidence = (
        f"With approximately {100 * cutoff.confidence:g} % confidence over the {cutoff.n_patients} calibration "
        "patients, under the assumption above and within its scope, "
    )
    if cutoff.risk is None:
        return (
            confidence + f"no risk cut-off could be shown to keep bad releases at {100 * alpha:g} % or less."
        )
    return confidence + (
        f"at most {100 * alpha:g} % of all values released in the long run at a risk of {cutoff.risk:.3g} or less "
        "are bad. A visit's release then depends on nothing else in its batch."
    )


def long_run_promise(cutoff: Cutoff, target: str, tolerance: str, alpha: float) -> str:
    """What deciding new patients' unmeasured visits one by one at a stored cut-off promises, in one sentence."""
    return (
        f"With approximately {100 * cutoff.confidence:g} % confidence over the {cutoff.n_patients:,} calibration "
        f"patients, at most {100 * alpha:g} % of all {target} values released in the long run for visits of patients "
        f"the training never saw, where nobody measured it, are off by {tolerance} or more."
    )


def _assumptions(claim: Claim, target: str) -> list[str]:
    drawn = (
        "New patients are like the calibration patients: the same kind of people, seen in the same way."
        if claim.new_patients
        else "Calibration visits were drawn at random from the visits where it was measured."
    )
    if claim.unmeasured:
        return [
            drawn,
            f"Given what the table shows about a visit, whether {target} was measured there depends neither on its "
            "value nor on whether it was measured at other visits. The promise is as good as the model of who gets "
            "measured, which weights the calibration visits.",
        ]
    return [
        drawn,
        f"Visits where nobody measured {target} are taken as if measuring had been decided at random; the claim "
        "'unmeasured' models the difference where there is one.",
    ]
