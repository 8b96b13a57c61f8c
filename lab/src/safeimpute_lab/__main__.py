"""Every runner of the laboratory by name: `python -m safeimpute_lab guarantee rules --out out/study …`."""

import importlib
import sys

RUNNERS = {
    "guarantee rules": "studies.guarantee.rules",
    "guarantee fits": "studies.guarantee.whole_fits",
    "guarantee study": "studies.guarantee.study",
    "guarantee promises": "studies.guarantee.promises",
    "guarantee page": "studies.guarantee.page",
    "decisions": "studies.decisions",
    "labs": "studies.labs",
    "limits": "studies.limits",
    "nights study": "studies.nights.study",
    "nights nafld": "studies.nights.nafld",
    "recalibration": "studies.recalibration",
    "sites": "studies.sites",
    "draws study": "studies.draws.study",
    "draws real": "studies.draws.real",
    "draws prediction": "studies.draws.prediction",
    "floor": "studies.floor",
    "rows": "studies.rows_curve",
    "dacmi": "studies.dacmi",
    "selections": "studies.selections",
    "speed draws": "speed.draws",
    "speed effort": "speed.effort",
    "speed export": "speed.export",
    "speed first_minutes": "speed.first_minutes",
    "speed scoring": "speed.scoring",
    "speed several_labs": "speed.several_labs",
    "speed training": "speed.training",
    "speed two_at_once": "speed.two_at_once",
    "speed value_edges": "speed.value_edges",
    "scale cohort": "speed.cohort",
    "scale million": "speed.million",
    "scale spark": "speed.spark",
    "evidence check": "evidence.provenance",
    "evidence make": "evidence.provenance",
    "evidence results": "evidence.results",
    "evidence tables": "evidence.benchmark_data",
    "evidence cells": "evidence.benchmark_cells",
    "evidence pack": "evidence.pack_cells",
    "evidence peers": "evidence.peers",
    "evidence promises": "evidence.promise_cost",
    "evidence reproduced": "evidence.reproduced_page",
}


def main() -> None:
    """Hand the rest of the command line to the runner it names."""
    for words in (2, 1):
        name = " ".join(sys.argv[1 : 1 + words])
        if name in RUNNERS:
            sys.argv = [f"{sys.argv[0]} {name}", *sys.argv[1 + words :]]
            importlib.import_module(f"safeimpute_lab.{RUNNERS[name]}").main()
            return
    sys.exit("Runners:\n" + "\n".join(f"  python -m safeimpute_lab {name}" for name in RUNNERS))


if __name__ == "__main__":
    main()
