"""Where networks run: without a driver nobody waits for torch to say so."""

import subprocess
import sys
from pathlib import Path

import pytest

from safeimpute.errors import OptionError
from safeimpute.runtime import devices


def test_without_a_driver_torch_is_not_asked() -> None:
    program = (
        "import sys; from safeimpute.runtime import devices; devices.DRIVERS = (); devices.sys.platform = 'linux'; "
        "print(devices.resolve_device('auto'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu", "False"]


def test_a_fit_and_its_reasons_need_no_torch() -> None:
    """Six labs with holes of every pattern: the search by products, not by trees of neighbours."""
    program = (
        "import sys, numpy as np; from safeimpute import SafeImputer; "
        "from safeimpute.records.simulate import simulate; "
        "from safeimpute.neighbours import search; search._trees_are_cheaper = lambda *given: False; "
        "visits = simulate('mimic4', np.random.default_rng(1), patients=150, labs=6).visits; "
        "fitted = SafeImputer(target='hba1c', tolerance=0.8, fdr=0.3, best={'folds': 3}, device='cpu').fit(visits); "
        "print(len(fitted.impute(visits)) > 0, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_with_a_driver_torch_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(devices, "DRIVERS", (tmp_path / "nvidiactl",))
    for there, said in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert devices.resolve_device("auto") == said
    with pytest.raises(OptionError, match="no GPU was found"):
        devices.resolve_device("cuda")
