"""What every test has."""

from helpers.fixtures import (
    clinical_data,
    cohort,
    cohort_arrays,
    no_ceiling_left_behind,
    no_looks_of_the_users,
    own_looks,
)

__all__ = ["clinical_data", "cohort", "cohort_arrays", "no_ceiling_left_behind", "no_looks_of_the_users", "own_looks"]
