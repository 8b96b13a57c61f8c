"""A small fitted run for the review page's tests, with identifiers that would act if anything let them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from filelock import FileLock

from safeimpute.visits.examples import load_pbc

HTML_ID = '<img src=x onerror="document.title=1">'
FORMULA_ID = '=HYPERLINK("http://x.invalid","hi")'
QUICK = """
[best]
folds = 3
own_each_way = 3
analogues = 4
"""


def build_run(folder: Path) -> Path:
    """The demo's visits imputed by a hasty fit; two patients renamed."""
    few = load_pbc().filter(pl.col("subject_id") <= 150)
    renamed = pl.col("subject_id").cast(pl.String).replace({"2": HTML_ID, "5": FORMULA_ID})
    few.with_columns(renamed).write_csv(folder / "visits.csv")
    (folder / "quick.toml").write_text(QUICK)
    told = ["--target", "cholesterol", "--tolerance", "20%", "--fdr", "0.25", "--unit", "mg/dL"]
    run = [sys.executable, "-m", "safeimpute", "run", str(folder / "visits.csv"), *told]
    quick, out = str(folder / "quick.toml"), str(folder / "run")
    subprocess.run([*run, "--why", "--quiet", "--config", quick, "--out", out], check=True)
    return folder / "run"


def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, whatever the number of test processes."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "review-run"
    with FileLock(f"{place}.lock"):
        if not (place / "run").is_dir():
            place.mkdir(exist_ok=True)
            build_run(place)
    return place / "run"


@dataclass(frozen=True)
class Server:
    """A real server process and the address it printed."""

    process: "subprocess.Popen[str]"
    address: str  # with the token

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]


@contextmanager
def running_server(run: Path) -> Iterator[Server]:
    """`safeimpute serve` as a user starts it, ended with the block."""
    command = [sys.executable, "-m", "safeimpute", "serve", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield Server(process, line.split()[-1])
        finally:
            process.terminate()
