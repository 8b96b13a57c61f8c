"""A new run at levels chosen on the page: `safeimpute rerun` as a process of its own, one at a time."""

import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

from safeimpute.errors import OptionError
from safeimpute.report.run_folder import read_summary
from safeimpute.settings import make_settings
from safeimpute.web.run_data import RunData

LABEL = "level chosen after looking: no guarantee"


class Rerun:
    """The last new run started from this page."""

    def __init__(self, run: RunData) -> None:
        self.run = run
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        self._lines: list[str] = []

    def start(self, tolerance: str, fdr: float) -> None:
        """Begin; refuses the run's own levels and a second run beside a running one."""
        config = self.run.manifest["config"]
        asked = make_settings(**config | {"tolerance": tolerance, "fdr": fdr})
        own = make_settings(**config)
        if (asked.allowed_error, asked.fdr) == (own.allowed_error, own.fdr):
            raise OptionError("the run on this page already has these levels. Choose others.")
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise OptionError("a new run is already under way. Wait until it has finished.")
            self._folder, self._lines = _free_name(self.run.beside), []
            self._process = subprocess.Popen(  # noqa: S603 - our own program; the levels were checked above
                _command(self.run.folder, tolerance, fdr, self._folder),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            self._lines.append(line.strip())
        process.wait()

    def status(self) -> dict[str, object]:
        """Nothing yet, running with its last words, finished with the outcome, or failed with the reason."""
        process, folder = self._process, self._folder
        if process is None or folder is None:
            return {"state": "none"}
        told = {"folder": folder.name, "label": LABEL, "lines": self._lines[-6:]}
        if process.poll() is None:
            return {"state": "running", **told}
        if process.returncode:
            return {"state": "failed", **told}
        summary = read_summary(folder)
        return {
            "state": "finished",
            **told,
            "promise": summary["promise"] or summary["no_promise"],
            "serve": shlex.join(["safeimpute", "serve", str(folder)]),
            "released": summary["released"],
            "withheld": summary["withheld"],
            "missing": summary["missing"],
            "fdr": summary["fdr"],
            "tolerance_in_words": summary["tolerance_in_words"],
        }

    def report(self) -> Path:
        if self.status()["state"] != "finished" or self._folder is None:
            raise OptionError("no new run has finished yet.")
        return self._folder / "report.html"

    def stop(self) -> None:
        """End a run still under way; it leaves nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # lets it clear away what is unfinished
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # deep in a fit; its unfinished folder has a hidden name
                self._process.kill()
                self._process.wait()


def _command(run: Path, tolerance: str, fdr: float, out: Path) -> list[str]:
    program = [sys.executable, "-m", "safeimpute", "rerun", str(run)]
    return [*program, f"--tolerance={tolerance}", f"--fdr={fdr!r}", f"--out={out}"]


def _free_name(folder: Path) -> Path:
    """A folder beside the run that is not there yet."""
    number = 1
    while (found := folder.with_name(f"{folder.name}-after-looking-{number}")).exists():
        number += 1
    return found
