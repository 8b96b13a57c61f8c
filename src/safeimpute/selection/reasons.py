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

WHAT_HELPS = {
    RISK_ABOVE_CUTOFF: "a wider tolerance or a higher level, chosen before looking; more patients with measured values",
    NO_EVIDENCE: "other labs of the same visit, or any other value of the patient, in the table",
    OUT_OF_RANGE: "a look at the unit: name it with --unit, or --unit-of where the file has another one",
    OUT_OF_SCOPE: "measured visits like this one; or measure it: no level or tolerance changes this reason",
    RISK_ABOVE_CAP: "a higher --risk-cap, or none",
    NOT_PROMISED: "what the run says: how many measured visits and patients the level needs, and how many there are",
    NOT_FILLED: "let the other tool fill in every hole; what it leaves empty stays withheld",
}
