"""What scoring promises to new patients, against a truth that is known also where nobody measured.

Every cohort is fitted and calibrated anew; its new patients come from the same population. The joint rule promises a
mean share of bad values over cohorts; the cut-off promises that only one cohort in twenty has a long-run share above
the level.
"""

import numpy as np
import polars as pl
import pytest

from safeimpute import SafeImputer
from safeimpute.evaluation.metrics import false_discovery_proportion, power
from safeimpute.imputers.blend import BlendSettings
from safeimpute.presets import BestSettings
from safeimpute.records.simulate import simulate
from safeimpute.scorer import Scorer
from scored_cohorts import NEW_SUBJECTS

LIGHT = BestSettings(BlendSettings(folds=2, attention=None))
LEVEL, TOLERANCE = 0.3, 0.6
PATIENTS, NEW_PATIENTS = 3000, 1500


def fitted(cohort: int) -> Scorer:
    visits = simulate("mimic4", np.random.default_rng([cohort, 1]), patients=PATIENTS).visits
    imputer = SafeImputer(
        target="hba1c",
        tolerance=TOLERANCE,
        fdr=LEVEL,
        claim="patients,unmeasured",
        random_state=cohort,
        best=LIGHT,
    )
    return imputer.fit(visits).scorer()


def scored(scorer: Scorer, cohort: int, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Whether each candidate of new patients is bad, and whether it is released."""
    drawn = simulate("mimic4", np.random.default_rng([cohort, 2]), patients=NEW_PATIENTS)
    visits, truth = (table.with_columns(pl.col("subject_id") + NEW_SUBJECTS) for table in drawn)
    table = scorer.score(visits, rule)  # type: ignore[arg-type]
    known = table.join(truth.rename({"hba1c": "truth"}), on=["subject_id", "time"], maintain_order="left")
    bad = scorer.model.tolerance.risky(known["value"].to_numpy(), known["truth"].to_numpy())
    return bad, known["released"].to_numpy()


def test_one_cohort_keeps_the_level_where_releasing_everything_would_not() -> None:
    scorer = fitted(0)
    for rule, allowance in (
        ("cutoff", 0.0),
        ("bh", 0.05),
    ):  # of one cohort the joint rule promises no exact share
        bad, released = scored(scorer, 0, rule)
        assert bad.mean() > LEVEL + 0.05
        assert false_discovery_proportion(bad, released) <= LEVEL + allowance
        assert power(bad, released) > 0.4


@pytest.mark.full
def test_over_twenty_cohorts() -> None:
    fdp: dict[str, list[float]] = {"cutoff": [], "bh": []}
    powers: dict[str, list[float]] = {"cutoff": [], "bh": []}
    for cohort in range(20):
        scorer = fitted(cohort)
        for rule in fdp:
            bad, released = scored(scorer, cohort, rule)
            fdp[rule].append(false_discovery_proportion(bad, released))
            powers[rule].append(power(bad, released))
    joint = np.array(fdp["bh"])
    assert joint.mean() <= LEVEL + 3 * joint.std(ddof=1) / np.sqrt(len(joint))
    # One cohort in twenty may exceed the level; four or more would happen by chance in 1.6 % of such studies.
    assert np.sum(np.array(fdp["cutoff"]) > LEVEL) <= 3
    assert np.mean(powers["bh"]) > 0.6
    assert np.mean(powers["cutoff"]) > 0.4
