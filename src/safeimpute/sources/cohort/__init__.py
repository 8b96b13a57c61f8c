"""One cohort definition, written once in Ibis, run by the engine that holds the data; makes the visits."""

from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import CohortDefinition, define_cohort

__all__ = ["CohortDefinition", "build_cohort", "define_cohort"]
