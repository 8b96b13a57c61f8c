"""Released share and error per group of visits: the promise is an average over them all."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.records.visits import Visits

USUAL_NAMES = ("sex", "gender", "age", "race", "ethnicity")  # shown first
MOST_ATTRIBUTES = 8
FEWEST_ERRORS = 10  # a mean of fewer errors says nothing
AGE_BANDS = (50.0, 65.0)
AGE_LABELS = ("under 50", "50 to under 65", "65 and over")
VISIT_BANDS = (2.0, 4.0, 8.0)
VISIT_LABELS = ("1 visit", "2 to 3 visits", "4 to 7 visits", "8 or more visits")
THIRDS = ("lowest third", "middle third", "highest third")
FEW_VALUES = 5


class GroupOutcome(TypedDict):
    """One group: what was released of its missing values, and how wrong its measured visits were imputed."""

    group: str
    missing: int
    released: int
    judged: int  # measured visits whose error is known
    mae: float | None  # None: too few of them
    risky: float | None  # share of unacceptable errors among them
    risky_passing: float | None  # the same among those the rule would release, weighted as the claim asks


class Subgroup(TypedDict):
    """An attribute and its groups, in order."""

    title: str
    groups: list[GroupOutcome]


@dataclass(frozen=True)
class Judgement:
    """What happened to which visit: decisions on candidates, errors at judged visits."""

    candidates: IntArray
    released: BoolArray  # per candidate
    judged: IntArray
    error: FloatArray  # |imputed - measured| per judged visit
    risky: BoolArray
    passing: BoolArray  # per judged visit: the rule would release it
    weight: FloatArray


@dataclass(frozen=True)
class _Grouping:
    title: str
    labels: tuple[str, ...]
    code: IntArray  # per visit: position in `labels`, -1 where unknown


def describe_subgroups(visits: Visits, judgement: Judgement) -> list[Subgroup]:
    """One entry per attribute (and one for visits per patient), each with its groups in order."""
    described: list[Subgroup] = []
    for grouping in _groupings(visits):
        groups = [
            _describe(label, grouping.code == code, judgement) for code, label in enumerate(grouping.labels)
        ]
        present = [group for group in groups if group["missing"] or group["judged"]]
        if len(present) > 1:
            described.append({"title": grouping.title, "groups": present})
    return described


def group_masks(visits: Visits) -> dict[str, BoolArray]:
    """Every group of every grouping as a mask over the visits."""
    return {
        f"{grouping.title}: {label}": grouping.code == code
        for grouping in _groupings(visits)
        for code, label in enumerate(grouping.labels)
    }


def _describe(label: str, member: BoolArray, judgement: Judgement) -> GroupOutcome:
    asked, checked = member[judgement.candidates], member[judgement.judged]
    passing = checked & judgement.passing
    weight, risky = judgement.weight[passing], judgement.risky[passing]
    return {
        "group": label,
        "missing": int(asked.sum()),
        "released": int(judgement.released[asked].sum()),
        "judged": int(checked.sum()),
        "mae": _mean(judgement.error[checked]),
        "risky": _mean(judgement.risky[checked].astype(np.float64)),
        "risky_passing": float(weight @ risky / weight.sum()) if len(weight) >= FEWEST_ERRORS else None,
    }


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) >= FEWEST_ERRORS else None


def _groupings(visits: Visits) -> Iterator[_Grouping]:
    ordered = sorted(visits.attributes, key=lambda name: (name.lower() not in USUAL_NAMES, name))
    for name in ordered[:MOST_ATTRIBUTES]:
        yield (
            _by_number(visits, name) if name in visits.arrays.attribute_names else _by_category(visits, name)
        )
    per_patient = np.bincount(visits.arrays.patient)[visits.arrays.patient]
    yield _Grouping("visits per patient", VISIT_LABELS, np.digitize(per_patient, VISIT_BANDS))


def _by_category(visits: Visits, name: str) -> _Grouping:
    arrays = visits.arrays
    columns = [i for i, column in enumerate(arrays.attribute_names) if column.startswith(f"{name}=")]
    flags = np.nan_to_num(arrays.attributes[:, columns])
    code = np.where(flags.any(axis=1), flags.argmax(axis=1), -1) if columns else np.full(len(visits), -1)
    return _Grouping(name, tuple(arrays.attribute_names[i][len(name) + 1 :] for i in columns), code)


def _by_number(visits: Visits, name: str) -> _Grouping:
    """Age in bands, few distinct values one by one, everything else in thirds of the visits."""
    values = visits.arrays.attributes[:, visits.arrays.attribute_names.index(name)]
    known = ~np.isnan(values)
    distinct = np.unique(values[known])
    if len(distinct) <= FEW_VALUES:
        code, labels = np.searchsorted(distinct, values), tuple(f"{value:g}" for value in distinct)
    elif name.lower() == "age":
        code, labels = np.digitize(values, AGE_BANDS), AGE_LABELS
    else:
        code, labels = np.digitize(values, np.quantile(values[known], (1 / 3, 2 / 3))), THIRDS
    return _Grouping(name, labels, np.where(known, code, -1))
