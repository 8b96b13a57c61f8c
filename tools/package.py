"""Build wheel and source, look into them, and try the wheel in an environment of its own.

    python tools/package.py dist               # builds; the trial borrows the libraries of this environment (seconds)
    python tools/package.py dist --clean       # the trial installs everything anew (minutes)
    python tools/package.py dist --extras      # also: does every extra resolve?

PIP_CONSTRAINT is heeded, so that torch stays the build that the constraints name.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parents[1]
TRIED = "import safeimpute, sys; assert 'site-packages' in safeimpute.__file__; print(safeimpute.__version__)"
UNTOLD = ("PYTHONPATH", "PYTHONHOME")  # nothing but the wheel may answer for safeimpute


def build(out: Path) -> tuple[Path, Path]:
    """A fresh wheel and source archive in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("safeimpute-*.whl"), *out.glob("safeimpute-*.tar.gz")):
        old.unlink()
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True)
    return next(out.glob("safeimpute-*.whl")), next(out.glob("safeimpute-*.tar.gz"))


def missing_from(wheel: Path, source: Path) -> list[str]:
    """Files of the package that did not get in, and what does not belong there."""
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())
    with tarfile.open(source) as packed_source:
        names = packed_source.getnames()
    folder = names[0].split("/")[0]
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/safeimpute").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    lost = [f"wheel lacks {name}" for name in sorted(ours - inside)]
    strange = {name for name in inside if not name.startswith("safeimpute")}
    lost += [f"wheel holds {name}" for name in sorted(strange)]
    needed = ("README.md", "LICENSE", "pyproject.toml", "CITATION.cff", "SECURITY.md", "CHANGELOG.md")
    return lost + [f"source lacks {name}" for name in needed if f"{folder}/{name}" not in names]


@contextmanager
def served_index(wheel: Path) -> Iterator[str]:
    """A package index on the loopback address that holds this wheel alone; its address."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "simple" / "safeimpute").mkdir(parents=True)
        shutil.copy(wheel, Path(place) / "simple" / "safeimpute")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=place))
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Lists folders and serves files, which is all that pip asks of an index."""

    def log_message(self, *_: object) -> None:
        return


def try_wheel(wheel: Path, *, clean: bool) -> str:
    """`pip install safeimpute` from a local index into a new environment, and its command tried there; the version."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "venv"
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        environment = {name: value for name, value in os.environ.items() if name not in UNTOLD}
        told = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        with served_index(wheel) as index:
            if clean:
                subprocess.run([*told, "--extra-index-url", index, "safeimpute"], check=True, env=environment)
            else:
                borrowed = sysconfig.get_path("purelib")
                ours = next((folder / "lib").glob("python*/site-packages"))
                # Appended as a plain path: `.pth` files there (an editable safeimpute) are not read.
                (ours / "borrowed.pth").write_text(f"{borrowed}\n")
                # The new environment's own setuptools is older than the one the libraries name.
                subprocess.run([*told[:3], "uninstall", "--quiet", "--yes", "setuptools"], check=True, env=environment)
                alone = environment | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index}  # no other source
                subprocess.run([*told, "--no-deps", "--ignore-installed", "safeimpute"], check=True, env=alone)
                subprocess.run([*told, "safeimpute"], check=True, env=alone)  # what it needs is there, or this fails

        def said(*command: str) -> str:
            done = subprocess.run(command, check=True, env=environment, cwd=place, capture_output=True, text=True)
            return done.stdout.strip()

        version = said(str(python), "-c", TRIED)
        command = str(folder / "bin" / "safeimpute")
        assert said(command, "--version") == f"safeimpute {version}"
        assert "release only those" in " ".join(said(command, "--help").split())
        said(command, "simulate", "mayo", "--patients", "20", "-o", "visits.csv")
        said(command, "methods")
        if clean:
            said(command, "demo", "--quiet", "--out", "demo")
            assert (Path(place) / "demo" / "report.html").exists()
        return version


def unresolved_extras(wheel: Path) -> list[str]:
    """Extras for which pip finds no set of packages: all of them at once, then one by one. Nothing is installed."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = list(tomllib.load(file)["project"]["optional-dependencies"])
    if resolves(wheel, extras):
        print(f"extras resolve together: {', '.join(extras)}", flush=True)
        return []
    return [f"extra {extra} does not resolve" for extra in extras if not resolves(wheel, [extra])]


def resolves(wheel: Path, extras: list[str]) -> bool:
    """Whether pip finds packages for these extras, nothing being installed yet."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    done = subprocess.run([*command, f"{wheel}[{','.join(extras)}]"], capture_output=True, check=False)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--clean", action="store_true", help="install every library anew, and run the demo")
    parser.add_argument("--extras", action="store_true", help="resolve every extra")
    chosen = parser.parse_args()
    wheel, source = build(chosen.out)
    wrong = missing_from(wheel, source)
    version = try_wheel(wheel, clean=chosen.clean)
    wrong += unresolved_extras(wheel) if chosen.extras else []
    print("\n".join([f"{wheel.name} and {source.name}: version {version}", *wrong]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
