"""The estimator's parameters: every option of a fit, by keyword, as scikit-learn expects."""

import inspect
from typing import Any, Self

from safeimpute.settings import Settings, parameters_of

PARAMETERS = {parameter.name: parameter for parameter in parameters_of(Settings)}


class Parameterised:
    """Takes the options of a fit by keyword and does no work."""

    def __init__(self, **parameters: Any) -> None:
        bound = _SIGNATURE.bind(self, **parameters)
        bound.apply_defaults()
        for name in PARAMETERS:
            setattr(self, name, bound.arguments[name])

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it uses an estimator: a table with names in, one with names out, no `y`."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(allow_nan=True, categorical=True, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` was called, or a fitted model loaded."""
        return hasattr(self, "settings_")

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The constructor's parameters, as scikit-learn asks."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown name is an error."""
        for name, value in params.items():
            if name not in PARAMETERS:
                raise ValueError(
                    f"{name!r} is no parameter of SafeImputer. Parameters: {', '.join(PARAMETERS)}."
                )
            setattr(self, name, value)
        return self


_SIGNATURE = inspect.Signature(
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *PARAMETERS.values()]
)
vars(Parameterised.__init__)["__signature__"] = _SIGNATURE
