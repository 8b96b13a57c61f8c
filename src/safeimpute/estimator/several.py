"""Several labs in one run: one imputer per lab over the same visits, released lab by lab or all together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import polars as pl

from safeimpute.errors import GuaranteeRefused, NotFittedError, VisitsError
from safeimpute.estimator.one_lab import LabImputer, Together
from safeimpute.records.asked import ALL, labs_asked, require_units_of_labs, settings_of_labs
from safeimpute.records.checks import require_same_clock
from safeimpute.records.tables import to_polars
from safeimpute.records.units import column_choice, target_unit
from safeimpute.records.visits import Visits, prepare_targets
from safeimpute.runtime.kept import Kept
from safeimpute.runtime.progress import Progress, SideBySide, silent
from safeimpute.runtime.threads import side_by_side
from safeimpute.scoring.labs_folder import labs_folder, read_labs
from safeimpute.scoring.several import SeveralScorer
from safeimpute.selection.bounds import Bound
from safeimpute.selection.claims import Promised, without_promise
from safeimpute.selection.release import Ground, rule_of
from safeimpute.selection.result import RunResult
from safeimpute.selection.several import (
    bound_together,
    decide_together,
    promise_of_several,
    refusal,
    require_promisable_together,
)
from safeimpute.settings import Settings


@dataclass
class SeveralLabs:
    """A fitted imputer for each lab; each was told the lab's own tolerance, unit and folds."""

    settings: Settings  # of the whole run
    imputers: dict[str, LabImputer]
    left_out: Mapping[str, str] = field(default_factory=dict)  # labs of `all` that cannot be imputed, and why

    @classmethod
    def fit(
        cls,
        settings: Settings,
        checked: Mapping[str, Visits],
        progress: Progress = silent,
        kept: Kept | None = None,
    ) -> Self:
        """Refuse what cannot succeed, then fit every lab; several at once where each is small."""
        labs, left_out = tuple(checked), {}
        told = settings_of_labs(settings, labs)
        require_units_of_labs(told, checked[labs[0]].arrays)
        require_same_clock(settings.since, checked[labs[0]].time)
        for lab, own in told.items():
            if why := refusal(checked[lab].arrays, own):
                left_out[lab] = why
        if left_out and settings.target != ALL:
            lab, why = next(iter(left_out.items()))
            raise GuaranteeRefused(why if repr(lab) in why else f"lab {lab!r}: {why}")
        labs = tuple(lab for lab in labs if lab not in left_out)
        if not labs:
            lab, why = next(iter(left_out.items()))
            raise GuaranteeRefused(f"no lab of the table can be imputed; {lab!r} for instance: {why}")
        if settings.over == "cells":
            require_promisable_together([checked[lab].arrays for lab in labs], settings)

        together = SideBySide(progress, len(labs))

        def fitted(job: tuple[int, str]) -> LabImputer:
            number, lab = job
            heard = together.job(number, f"{lab}, {number + 1} of {len(labs)} labs: ")
            imputer = LabImputer(**vars(told[lab]))
            return imputer.fit_checked(checked[lab], heard, kept)

        found = side_by_side(fitted, list(enumerate(labs)), len(checked[labs[0]]))
        return cls(settings, dict(zip(labs, found, strict=True)), left_out)

    def told(self, settings: Settings) -> None:
        """Pass on what was changed since the fit; what may not change any more is refused when it is used."""
        if settings.target != self.settings.target:
            raise NotFittedError("parameters were changed since fit: call fit again.")
        for lab, own in settings_of_labs(settings, tuple(self.imputers)).items():
            self.imputers[lab].set_params(**vars(own))
            self.imputers[lab].current_settings()
        self.settings = settings

    def meet(self, visits: Any) -> None:
        """Take a table for the fitted one, or refuse it."""
        first = next(iter(self.imputers.values()))
        checked = prepare_targets(visits, column_choice(first.settings_), tuple(self.imputers))
        for lab, imputer in self.imputers.items():
            imputer.meet(checked[lab])

    def decide(self) -> None:
        """Where one level holds over all labs, decide them together before any of them is shown."""
        if self.settings.over != "cells":
            return
        decisions = decide_together(self._grounds(), rule_of(self.settings))
        promised = promise_of_several(self.settings, self.tolerances, self._columns())
        for lab, imputer in self.imputers.items():
            imputer.together_ = Together(decisions[lab], promised)

    def impute(self) -> pl.DataFrame:
        """One row per missing cell, lab by lab."""
        self.decide()
        return pl.concat([imputer.imputed() for imputer in self.imputers.values()])

    def bound(self) -> Bound:
        """With the confidence, how many of all values released by the last `impute` are unacceptable at most."""
        decisions = {lab: imputer.decision_ for lab, imputer in self.imputers.items()}
        return bound_together(self._grounds(), rule_of(self.settings), decisions, self.settings.over)

    def results(self) -> dict[str, RunResult]:
        """What each lab's part of the last `impute` came to, as data."""
        self.decide()
        return {lab: imputer.result() for lab, imputer in self.imputers.items()}

    def _grounds(self) -> dict[str, Ground]:
        return {
            lab: imputer.calibrated_.ground(imputer.current_settings().allowed_error)
            for lab, imputer in self.imputers.items()
        }

    def filled(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with every lab's released values filled in; `<lab>_released` flags them."""
        self.decide()
        for imputer in self.imputers.values():
            frame = imputer.filled(frame)
        return frame

    def transform(self, visits: Any) -> pl.DataFrame:
        """A table with every lab's released values filled in: the fitted one, or another by the frozen models."""
        frame = to_polars(visits)
        try:
            self.meet(visits)
        except (GuaranteeRefused, VisitsError):
            filled = frame
            self.decide()
            for imputer in self.imputers.values():
                filled = imputer.filled_new(frame, filled)
            return filled
        return self.filled(frame)

    def columns_added(self) -> list[str]:
        """What `transform` adds to a table's columns."""
        return [name for imputer in self.imputers.values() for name in imputer.columns_added()]

    def fitted_in_words(self) -> dict[str, str]:
        """The labs, and the visits they were learnt from."""
        first = next(iter(self.imputers.values()))
        return {**first.fitted_in_words(), "target": ", ".join(self.imputers)}

    def release_in_words(self) -> dict[str, str]:
        """How many values of every lab were released and withheld."""
        each = {lab: imputer.release_in_words() for lab, imputer in self.imputers.items()}
        return {
            lab: ", ".join(f"{name}: {words}" for name, words in said.items()) for lab, said in each.items()
        }

    def explain(self, visits: Any) -> pl.DataFrame:
        """The visits that carried each imputation, with the lab imputed."""
        return pl.concat(
            [
                to_polars(imputer.explain(visits)).select(pl.lit(lab).alias("lab"), pl.all())
                for lab, imputer in self.imputers.items()
            ]
        )

    def scorer(self) -> SeveralScorer:
        """All labs as one scorer; the levels are fixed from here on."""
        if not any(hasattr(imputer, "saved_") for imputer in self.imputers.values()):
            self.decide()
        return SeveralScorer({lab: imputer.scorer() for lab, imputer in self.imputers.items()})

    def promised(self) -> Promised:
        """What the release of all labs promises; or why it promises nothing."""
        each = {lab: imputer.promised() for lab, imputer in self.imputers.items()}
        refused = {lab: said.no_promise for lab, said in each.items() if said.no_promise}
        if len(refused) == len(each):
            return without_promise(next(iter(refused.values())))
        kept = {lab: words for lab, words in self.tolerances.items() if lab not in refused}
        said = promise_of_several(self.settings, kept, self._columns())
        if not refused:
            return said
        nothing = f"Nothing is promised for {', '.join(refused)}."
        return Promised(said.promise, said.assumption, f"{nothing} {said.limits}")

    @property
    def tolerances(self) -> dict[str, str]:
        """Each lab's tolerance in words."""
        return {
            lab: imputer.settings_.allowed_error.describe(target_unit(imputer.settings_))
            for lab, imputer in self.imputers.items()
        }

    def save(
        self, folder: Path, *, second_looks: Collection[str] = (), sign: str | Path | None = None
    ) -> None:
        """Write a folder with one model per lab, whole or not at all; those of `second_looks` promise nothing."""
        self.decide()
        with labs_folder(folder, tuple(self.imputers), self.settings) as places:
            for lab, place in places.items():
                self.imputers[lab].save(place, second_look=lab in second_looks, sign=sign)

    @classmethod
    def load(cls, folder: Path, public_key: str | Path | None = None) -> Self:
        """What `save` wrote; with a key, each model must be signed by its owner."""
        stored = read_labs(folder)
        loaded = {lab: LabImputer.load(place, public_key=public_key) for lab, place in stored.places.items()}
        return cls(stored.settings, loaded)

    def _columns(self) -> tuple[str, ...]:
        """What the models of measuring looked at, over all labs."""
        models = [imputer.calibrated_.measuring for imputer in self.imputers.values()]
        return tuple(dict.fromkeys(name for model in models if model is not None for name in model.columns))


def check_labs(settings: Settings, table: Any) -> dict[str, Visits]:
    """The visits of a table once for each lab asked for, as its target."""
    frame = to_polars(table)
    return prepare_targets(frame, column_choice(settings), labs_asked(settings, frame))


def require_one(imputer: LabImputer, several: SeveralLabs | None) -> None:
    """Refuse what only one lab's imputer can answer."""
    if several is not None:
        raise VisitsError(
            f"this {type(imputer).__name__} holds {len(several.imputers)} labs: ask one of them, as in "
            f"imputer.labs_.imputers[{next(iter(several.imputers))!r}]."
        )
