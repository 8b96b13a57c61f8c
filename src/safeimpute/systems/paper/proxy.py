"""The paper's proxy risk: instability under thinning plus a penalty for scarce evidence."""

import numpy as np

from safeimpute.records.arrays import FloatArray
from safeimpute.systems.protocol import Imputation

BETA = 0.1


def evidence_penalty(temporal_degree: FloatArray, value_degree: FloatArray) -> FloatArray:
    """1 / sqrt(deg_t + 1) + 1 / sqrt(deg_v + 1). Equation 30."""
    penalty: FloatArray = 1.0 / np.sqrt(temporal_degree + 1.0) + 1.0 / np.sqrt(value_degree + 1.0)
    return penalty


def proxy_risk(imputation: Imputation, beta: float = BETA) -> FloatArray:
    """Instability (z-units) plus beta times the evidence penalty; beta 0 is the ablation. Equation 31."""
    signals = imputation.signals
    return signals["instability"] + beta * evidence_penalty(
        signals["temporal_degree"], signals["value_degree"]
    )
