"""A benchmark's finished cells as one small file, so that it can be gone on with elsewhere.

    python -m safeimpute_lab evidence pack pack WORK cells.zip         every study of a work folder, without its visits
    python -m safeimpute_lab evidence pack unpack cells.zip WORK       into a work folder, for `benchmark --work WORK`

Values are kept to the precision of a single, which is beyond any table's; visits are not kept: preparing the same
benchmark writes them anew, and a study whose visits differ has another name.
"""

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np


def pack(work: Path, file: Path) -> int:
    """All finished cells; returns their number."""
    cells = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as packed:
        for study in sorted(work.glob("*/study.json")):
            packed.write(study, study.relative_to(work))
            for figures in sorted((study.parent / "cells").glob("*.json")):
                packed.write(figures, figures.relative_to(work))
                arrays = figures.with_suffix(".npz")
                if arrays.exists():
                    packed.writestr(str(arrays.relative_to(work)), smaller(arrays))
                cells += 1
    return cells


def smaller(file: Path) -> bytes:
    """A cell's arrays, long floats as short ones."""
    with np.load(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    short = {n: each.astype(np.float32) if each.dtype == np.float64 else each for n, each in arrays.items()}
    held = io.BytesIO()
    np.savez(held, **short)
    return held.getvalue()


def unpack(file: Path, work: Path) -> int:
    """Cells that are not there yet; returns their number."""
    written = 0
    with zipfile.ZipFile(file) as packed:
        for name in packed.namelist():
            place = work / name
            if work.resolve() not in place.resolve().parents or place.exists():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(packed.read(name))
            written += name.endswith(".json") and "/cells/" in name
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("pack", "unpack"))
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    given = parser.parse_args()
    count = {"pack": pack, "unpack": unpack}[given.step](given.first, given.second)
    print(f"{count} cells")


if __name__ == "__main__":
    main()
