"""Why a value is withheld: every reason, once."""

RISK_ABOVE_CUTOFF = "risk above cut-off"
NO_EVIDENCE = "no evidence"
OUT_OF_RANGE = "out of range"
OUT_OF_SCOPE = "outside the guarantee's scope"
RISK_ABOVE_CAP = "risk above the cap"
NOT_PROMISED = "no promise possible"
NOT_FILLED = "not filled in"

IN_WORDS = {
    RISK_ABOVE_CUTOFF: "the imputation is too likely to be off by the tolerance or more",
    NO_EVIDENCE: "neither another value of the patient nor any other lab supports it",
    OUT_OF_RANGE: "the imputed value is not a plausible one",
    OUT_OF_SCOPE: "too few measured visits resemble this one for a promise",
    RISK_ABOVE_CAP: "its own risk is above the largest one asked for",
    NOT_PROMISED: "nothing could be promised on this table",
    NOT_FILLED: "the tool that imputed gave no value",
}
