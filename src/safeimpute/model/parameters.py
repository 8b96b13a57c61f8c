"""What scikit-learn and notebooks expect beside fitting: every option by keyword, tags, kinds of output."""

import inspect
from typing import Any, Literal, Self

from safeimpute.errors import OptionError
from safeimpute.machine.options import parameters_of
from safeimpute.settings import Settings

PARAMETERS = {parameter.name: parameter for parameter in parameters_of(Settings)}


OutputKind = Literal["default", "pandas", "polars", "numbers"]


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

        "numbers" is for a pipeline whose next step takes nothing else: dates as days since 1970, yes and no as 1 and 0,
        identifiers and text left out, in pandas.

        Parameters
        ----------
        transform : {"default", "pandas", "polars", "numbers"}, optional
            None leaves it as it is.
        """
        if transform not in (None, "default", "pandas", "polars", "numbers"):
            raise OptionError(f"output {transform!r} is not known: default, pandas, polars or numbers.")
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
