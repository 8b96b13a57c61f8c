"""The paper's release of PBC cholesterol, kept in a file: `python tests/helpers/golden_paper.py` writes it anew."""

import json
from pathlib import Path

import numpy as np

from safeimpute import SafeImputer
from safeimpute.model.labs import decided
from safeimpute.visits.examples import load_pbc

FILE = Path(__file__).with_name("golden_paper.json")
EPOCHS = 60  # enough to learn; few, so that machines have little time to drift apart


def letter() -> SafeImputer:
    """The preset paper fitted to PBC, and what it decides about every missing value."""
    imputer = SafeImputer(
        target="cholesterol", tolerance="20%", fdr=0.35, preset="paper", device="cpu", paper={"gcn": {"epochs": EPOCHS}}
    )
    imputer.fit(load_pbc())
    imputer.impute(load_pbc())
    return imputer


def content(imputer: SafeImputer) -> dict[str, object]:
    """Per candidate its p-value and whether it is released."""
    decision = decided(imputer.labs_["cholesterol"])
    return {
        "p_value": [round(float(p), 5) for p in decision.p_value],
        "released": np.flatnonzero(decision.released).tolist(),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(content(letter()), separators=(",", ":")) + "\n")
