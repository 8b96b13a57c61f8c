"""`hide`: the visits with some measured values taken out, and what was taken out kept apart for `release`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from safeimpute.errors import ModelFolderError, OptionError, VisitsError
from safeimpute.learning.roles import Role, Roles, split_visits
from safeimpute.machine.files import finished_folder
from safeimpute.selection.questions import Question, ask
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.arrays import BoolArray, FloatArray, Stream, VisitArrays, generator
from safeimpute.visits.columns import COMPANIONS, ColumnChoice
from safeimpute.visits.tables import like, to_polars
from safeimpute.visits.units import column_choice, require_known_units, target_unit
from safeimpute.visits.visits import Visits, looks_fingerprint, prepare_visits

FORMAT = 1
RECORD, TABLE, ANSWERS = "hidden.json", "visits", "answers.parquet"
FEWEST_HIDDEN = 20  # fewer validation or calibration visits teach and decide nothing


@dataclass(frozen=True)
class Facts:
    """What a hidden table is about, and how it was read."""

    choice: ColumnChoice
    unit: str | None
    seed: int
    fingerprint: str  # of the visits as measured, for second looks


class Hidden:
    """Visits with validation and calibration targets taken out.

    Attributes
    ----------
    visits : table
        The given table, of the same kind and in the same order, with the target empty where it is hidden: what
        another tool fills in. It has no mark of what was hidden and what was never measured.
    """

    def __init__(self, shown: Any, answers: FloatArray, roles: Roles, facts: Facts) -> None:
        self.visits = shown
        self.facts = facts
        self.roles = roles
        self.answers = answers  # per visit: the measured value where it is hidden, NaN elsewhere
        self.prepared: Visits = prepare_visits(shown, facts.choice)
        self.folder: Path | None = None  # where it is kept, if it is
        self.released = False

    def question(self, settings: Settings) -> Question:
        """What the hidden values are for: validation teaches the risk, calibration decides, the rest is asked about."""
        return ask(
            self.prepared.arrays,
            settings,
            judged=self.roles == Role.CALIBRATION,
            candidate=self.roles == Role.UNMEASURED,
            validation_target=self.validation_target,
        )

    @property
    def validation_target(self) -> FloatArray:
        """The hidden values that teach the risk; NaN elsewhere."""
        return np.where(self.roles == Role.VALIDATION, self.answers, np.nan)

    @property
    def truth(self) -> FloatArray:
        """Every measured value."""
        return np.where(np.isnan(self.answers), self.prepared.arrays.target_values, self.answers)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the table to be filled in (csv and parquet) and, apart, what was hidden.

        Parameters
        ----------
        folder : path
            A new folder.
        force : bool
            Replace an earlier one.
        """
        table = to_polars(self.visits)
        with finished_folder(Path(folder), force=force) as partial:
            table.write_csv(partial / f"{TABLE}.csv")
            table.write_parquet(partial / f"{TABLE}.parquet")
            visit = np.flatnonzero(~np.isnan(self.answers))
            kept = {"visit": visit, "role": self.roles[visit], "value": self.answers[visit]}
            pl.DataFrame(kept).write_parquet(partial / ANSWERS)
            record = {"format": FORMAT, **asdict(self.facts), "visits_sha256": self.prepared.fingerprint}
            (partial / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        self.folder = Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """What `save` or the command `hide` wrote.

        Parameters
        ----------
        folder : path
            As it was written; a changed one is refused.
        """
        place = Path(folder)
        try:
            record = json.loads((place / RECORD).read_text(encoding="utf-8"))
            shown, kept = pl.read_parquet(place / f"{TABLE}.parquet"), pl.read_parquet(place / ANSWERS)
            facts = Facts(_choice(record["choice"]), record["unit"], record["seed"], record["fingerprint"])
            found = cls(shown, *_answers(kept, shown, facts.choice), facts)
        except (OSError, ValueError, KeyError, TypeError, IndexError, pl.exceptions.PolarsError) as error:
            raise ModelFolderError(
                f"{place.name!r} is no folder that hide wrote ({type(error).__name__}). Give hide's folder, "
                "unchanged, and the filled-in table as a file of its own."
            ) from None
        if found.prepared.fingerprint != record["visits_sha256"] or _original(found) != facts.fingerprint:
            raise ModelFolderError(
                f"{place.name!r} was changed since hide wrote it: its table or its answers are others. Hide again, and "
                "give the filled-in table as a file of its own."
            )
        found.folder = place
        return found


def _choice(stored: Mapping[str, Any]) -> ColumnChoice:
    read: Any = {name: tuple(each) if isinstance(each, list) else each for name, each in stored.items()}
    return ColumnChoice(**read)


def _answers(kept: pl.DataFrame, shown: pl.DataFrame, choice: ColumnChoice) -> tuple[FloatArray, Roles]:
    arrays = prepare_visits(shown, choice).arrays
    visit = kept["visit"].to_numpy()
    answers = np.full(len(arrays), np.nan)
    answers[visit] = kept["value"].to_numpy()
    roles = np.where(np.isnan(arrays.target_values), Role.UNMEASURED, Role.TRAINING).astype(np.int8)
    roles[arrays.target_censored] = Role.CENSORED
    roles[visit] = kept["role"].to_numpy()
    return answers, roles


def _original(hidden: Hidden) -> str:
    return looks_fingerprint(hidden.prepared.arrays.with_target(hidden.truth))


def hide(
    visits: Any,
    *,
    target: str,
    validation: float = 0.15,
    calibration: float = 0.15,
    random_state: int = 0,
    **columns: Any,
) -> Hidden:
    """Take some measured values out of a table, so that another tool's imputations can be judged where they were.

    Parameters
    ----------
    visits : table
        One row per visit (pandas, polars or pyarrow).
    target : str
        Lab to be imputed.
    validation : float
        Share of the measured values from whose errors the risk is learnt.
    calibration : float
        Share of the measured values whose errors decide the release.
    random_state : int
        Seed of the choice.
    columns : dict
        `labs`, `attributes`, `exclude`, `subject`, `time` and `unit`, as `SafeImputer` takes them.

    Returns
    -------
    Hidden
        `visits` to be filled in, and what was hidden; `save` writes both.

    Raises
    ------
    VisitsError
        The table cannot be used, and why.
    """
    if not (0 < validation < 1 and 0 < calibration < 1 and validation + calibration < 1):
        raise OptionError("validation and calibration are shares above 0 that leave some of the values visible.")
    settings = make_settings(
        **{"target": target, "tolerance": 1.0, "fdr": 0.5, "random_state": random_state, **columns}
    )
    measured = prepare_visits(visits, column_choice(settings))
    require_known_units(settings, measured.arrays)
    shares = (1 - validation - calibration, validation, calibration)
    roles = _draw(measured.arrays, settings.random_state, shares)
    hidden = np.isin(roles, (Role.VALIDATION, Role.CALIBRATION))
    facts = Facts(
        _as_read(measured, settings.target, settings.subject, settings.time),
        target_unit(settings),
        settings.random_state,
        looks_fingerprint(measured.arrays),
    )
    answers = np.where(hidden, measured.arrays.target_values, np.nan)
    shown = _emptied(to_polars(visits), settings.target, hidden[measured.row_visit])
    return Hidden(like(shown, visits), answers, roles, facts)


def _draw(arrays: VisitArrays, seed: int, shares: tuple[float, float, float]) -> Roles:
    known = ~np.isnan(arrays.target_values)
    if (known | arrays.target_censored).all():
        raise VisitsError("the target is measured at every visit: there is nothing to impute.")
    roles = split_visits(known, generator(seed, Stream.SPLIT), fractions=shares)
    roles[arrays.target_censored] = Role.CENSORED
    fewest = min(int((roles == role).sum()) for role in (Role.VALIDATION, Role.CALIBRATION))
    if fewest < FEWEST_HIDDEN:
        raise VisitsError(
            f"of {int(known.sum()):,} measured values only {fewest} would be hidden for validation or calibration; at "
            f"least {FEWEST_HIDDEN} are needed. Give more visits, or larger shares."
        )
    return roles


def _as_read(visits: Visits, target: str, subject: str, time: str) -> ColumnChoice:
    """The choice of columns spelled out, so that the table is read alike without its hidden values."""
    ignored = tuple(name for name, each in visits.roles.items() if each.role == "ignored")
    return ColumnChoice(target, subject, time, visits.labs, visits.attributes, ignored)


def _emptied(frame: pl.DataFrame, target: str, rows: BoolArray) -> pl.DataFrame:
    """The target and its companions empty in some rows: one left behind would tell hidden from never measured."""
    names = [target, *(target + ending for ending in COMPANIONS if target + ending in frame.columns)]
    return frame.with_columns(pl.when(~pl.Series(rows)).then(pl.col(name)).alias(name) for name in names)
