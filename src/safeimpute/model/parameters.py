"""What scikit-learn and notebooks expect beside fitting: every option by keyword, tags, an imputer at a glance."""

import inspect
from collections.abc import Mapping
from html import escape
from typing import Any, Literal, Self

from safeimpute.errors import OptionError
from safeimpute.machine.options import parameters_of
from safeimpute.model.labs import FittedLab, Labs
from safeimpute.selection.claims import Promised
from safeimpute.settings import Settings

PARAMETERS = {parameter.name: parameter for parameter in parameters_of(Settings)}


OutputKind = Literal["default", "pandas", "polars"]


class Parameterised:
    """Takes the options of a fit by keyword and does no work."""

    _output: OutputKind = "default"

    def __init__(self, **parameters: Any) -> None:
        bound = _SIGNATURE.bind(self, **parameters)
        bound.apply_defaults()
        for name in PARAMETERS:
            setattr(self, name, bound.arguments[name])

    def __repr__(self) -> str:
        told = self.get_params()
        said = [f"{name}={value!r}" for name, value in told.items() if value != PARAMETERS[name].default]
        return f"{type(self).__name__}({', '.join(said)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it uses an estimator: a table with names in, one with names out, no `y`."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(allow_nan=True, categorical=True, string=True),
        )

    def set_output(self, *, transform: OutputKind | None = None) -> Self:
        """Say which kind of table `transform` gives: "pandas", "polars", or "default", the kind it is given.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            None leaves it as it is.
        """
        if transform not in (None, "default", "pandas", "polars"):
            raise OptionError(f"output {transform!r} is not known: default, pandas or polars.")
        if transform is not None:
            self._output = transform
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The constructor's parameters, as scikit-learn asks."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown name is an error."""
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ValueError(f"{name!r} is no parameter of SafeImputer. Parameters: {', '.join(PARAMETERS)}.")
            setattr(self, name, value)
        return self


_SIGNATURE = inspect.Signature(
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *PARAMETERS.values()]
)
vars(Parameterised.__init__)["__signature__"] = _SIGNATURE


def as_html(heading: str, rows: Mapping[str, str]) -> str:
    """A heading and a table of names and words."""
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(words)}</td></tr>'
        for name, words in rows.items()
    )
    return f"<div><code>{escape(heading)}</code><table>{cells}</table></div>"


def at_a_glance(labs: Labs, promised: Promised) -> dict[str, str]:
    """What was fitted, what is promised, what was released and withheld, in words."""
    said = {"promise": promised.promise, "assumption": promised.assumption, "limits": promised.limits}
    said |= {"no guarantee": promised.no_promise}
    return {**_fitted(labs), **{name: words for name, words in said.items() if words}, **_released(labs)}


def _fitted(labs: Labs) -> dict[str, str]:
    """The labs, and the visits they were learnt from."""
    first = next(iter(labs.values()))
    unit = f" ({first.unit.name})" if first.unit.name and len(labs) == 1 else ""
    found = {"target": f"{', '.join(labs)}{unit}", "claim": first.settings.claim}
    if visits := vars(first).get("visits"):
        found["fitted"] = f"{len(visits):,} visits of {visits.patients:,} patients"
    return found


def _released(labs: Labs) -> dict[str, str]:
    """How many values were released and withheld; of several labs, of each."""
    each = {name: _counts(lab) for name, lab in labs.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    return {name: ", ".join(f"{what}: {words}" for what, words in said.items()) for name, said in each.items()}


def _counts(lab: FittedLab) -> dict[str, str]:
    if lab.decision is None:
        return {"released": "not decided yet: call impute"}
    released = int(lab.decision.released.sum())
    return {"released": f"{released:,}", "withheld": f"{len(lab.decision.released) - released:,}"}
