"""A fitted imputer as it was before its errors were used, so that tests can share a fit and look anew."""

from copy import copy

from safeimpute import SafeImputer


def unseen(fitted: SafeImputer) -> SafeImputer:
    """A copy that was fitted and never asked for a release."""
    imputer = copy(fitted)
    imputer.labs_ = {name: copy(lab) for name, lab in fitted.labs_.items()}
    for lab in imputer.labs_.values():
        lab.looked = lab.decision = lab.bound = lab.scorer = None
    return imputer
