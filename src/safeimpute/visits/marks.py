"""How an imputed value is marked in each clinical format: what writers set, readers recognise by."""

SOURCE = "SAFEIMPUTE//"  # begins the source value of an OMOP measurement and a MEDS code
LAB = f"{SOURCE}LAB//"  # followed by the lab's name
NO_GUARANTEE = "//NO GUARANTEE"  # ends an OMOP source value where nothing is promised

# Labels of HL7's guide to AI transparency: asserted by a machine; asserted by a clinician from a machine's report.
OBSERVATION_VALUE = "http://terminology.hl7.org/CodeSystem/v3-ObservationValue"
ADDED_PROVENANCE = "http://hl7.org/fhir/uv/aitransparency/CodeSystem/AddedProvenanceCS"
ASSERTED = {"system": OBSERVATION_VALUE, "code": "AIAST", "display": "Artificial Intelligence asserted"}
ACCEPTED = {"system": ADDED_PROVENANCE, "code": "CLINAST_AIRPT", "display": "Clinician Asserted from AI Reported"}
AI_LABELS = frozenset({"AIAST", "AIRPT", "CLINAST_AIRPT", "AIAST_CLINRPT"})
TAGS = "urn:safeimpute:mark"  # system of our own tags: imputed, withheld, no-guarantee

# OMOP's type concepts of what an algorithm derived: of any source, of claims, of a health record.
ALGORITHM_FROM_EHR = 32882
ALGORITHMS = (32880, 32881, ALGORITHM_FROM_EHR)


def source_value(lab: str, *, guaranteed: bool) -> str:
    """An OMOP source value, at most the 50 characters the model allows."""
    ending = "" if guaranteed else NO_GUARANTEE
    return f"{LAB}{lab}"[: 50 - len(ending)] + ending
