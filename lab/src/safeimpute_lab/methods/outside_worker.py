"""Completes a table's first column with another's package; runs by itself, mostly in the baselines environment.

Called as: outside_worker.py METHOD SEED GIVEN.npz ANSWER.npz [SETTING=NUMBER ...]. Imports nothing of safeimpute.
Its own lines on stderr carry a prefix and hold no value of the table; other lines are never shown.
"""

import functools
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np

TARGET = "0"
DATA_SETS = 5  # imputed tables of miceforest and mice, whose mean is the value
TURNS = 2  # in which visible targets are hidden to be imputed themselves
NEVER_FITTED = -9_999_999  # the score HyperImpute gives a learner that raised an error


class Refused(Exception):
    """A reason that may be shown as it is."""


def main(method: str, seed: str, given: str, answer: str, *settings: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if method in OLD_PANDAS:
        _require_versions()
    if method not in IN_R:
        import torch  # noqa: F401 - loaded after pyarrow or scikit-learn, its matrix products take 50 times as long
    numbers = {name: float(value) for name, value in (each.split("=") for each in settings)}
    with np.load(given) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez(answer, **METHODS[method](arrays, int(seed), numbers))


def _frame(arrays: dict[str, Any]) -> Any:
    """The table with numbered columns, as the packages want it."""
    import pandas as pd

    return pd.DataFrame({str(number): column for number, column in enumerate(arrays["table"].T)})


def _end_with_parent() -> None:
    """The parent keeps our standard input open for as long as it lives."""
    os.read(0, 1)  # not sys.stdin, whose lock a thread may not hold when Python shuts down
    os.killpg(0, signal.SIGKILL)


def _require_versions() -> None:
    """Under pandas 3 hyperimpute's assignments are lost without a word and the columns' means come back."""
    import pandas as pd

    if int(pd.__version__.split(".")[0]) >= 3:
        raise Refused(f"pandas {pd.__version__} is installed; hyperimpute needs pandas < 3. Run `make baselines`.")


def hyperimpute(arrays: dict[str, Any], seed: int, settings: dict[str, float]) -> dict[str, Any]:
    """HyperImpute with its defaults; visible targets are answered by the target's last learner."""
    table = _frame(arrays)
    import hyperimpute.plugins.imputers.plugin_hyperimpute as plugin  # type: ignore[import-not-found]

    imputer = plugin.HyperImputePlugin(random_state=seed, n_inner_iter=int(settings["iterations"]))
    completed = imputer.fit_transform(table)
    completed.columns = table.columns
    runner = imputer.model
    if max(runner.perf_trace.get(TARGET, [0])) <= NEVER_FITTED:
        raise Refused("none of HyperImpute's learners could be fitted to the target")
    target, visible = completed[TARGET].to_numpy(copy=True), table[TARGET].notna().to_numpy()
    learner = runner.column_to_model.get(TARGET)
    if learner is None or table[TARGET].nunique() < 2:
        target[visible] = table[TARGET].mean()
        return {"target": target}
    own = learner.predict(completed.drop(columns=TARGET)[visible]).to_numpy().reshape(-1)
    encoder = runner.encoders.get(TARGET)  # a target of very few values is treated as classes
    target[visible] = own if encoder is None else encoder.inverse_transform(own.astype(int))
    return {"target": target}


def gain(arrays: dict[str, Any], seed: int, settings: dict[str, float]) -> dict[str, Any]:
    """GAIN with the paper's settings. The package's plugin keeps none of the arguments it is given, and its model
    no weight of the reconstruction loss: both are set here."""
    import hyperimpute.plugins.imputers.plugin_gain as plugin  # type: ignore[import-not-found]
    import torch
    from hyperimpute.utils.distributions import enable_reproducible_results  # type: ignore[import-not-found]

    enable_reproducible_results(seed)
    plugin.GainModel = functools.partial(plugin.GainModel, loss_alpha=settings["alpha"])
    network = plugin.GainImputation(
        batch_size=int(settings["batch"]), n_epochs=int(settings["iterations"]), hint_rate=settings["hint"]
    )
    shown = torch.tensor(arrays["table"])
    blank = shown.clone()
    blank[:, 0] = torch.nan
    network.fit(shown)
    return {"target": network.transform(blank)[:, 0].numpy()}


def miceforest(arrays: dict[str, Any], seed: int, settings: dict[str, float]) -> dict[str, Any]:
    """miceforest with its defaults; visible targets are answered as those of new rows that have none."""
    from miceforest import ImputationKernel  # type: ignore[import-not-found]

    table = _frame(arrays)
    kernel = ImputationKernel(table, num_datasets=DATA_SETS, random_state=seed)
    kernel.mice(int(settings["iterations"]))
    shown = table[table[TARGET].notna()].reset_index(drop=True)
    again = kernel.impute_new_data(shown.assign(**{TARGET: np.nan}), random_state=seed)
    target = _mean_of(kernel)
    target[table[TARGET].notna().to_numpy()] = _mean_of(again)
    return {"target": target}


def _mean_of(imputed: Any) -> Any:
    return np.mean([imputed.complete_data(number)[TARGET].to_numpy() for number in range(DATA_SETS)], axis=0)


def in_r(method: str) -> Any:
    """One of R's packages, by Rscript."""

    def complete(arrays: dict[str, Any], seed: int, _: dict[str, float]) -> dict[str, Any]:
        given, answer = (str(Path.cwd() / name) for name in ("given.csv", "answer.csv"))
        table = np.column_stack([arrays["table"], arrays["patient"]])
        np.savetxt(given, table, delimiter=",", fmt="%.17g")
        script = str(Path(__file__).with_suffix(".R"))
        command = ["Rscript", "--vanilla", script, method, str(seed), given, answer]
        ended = subprocess.run(command, check=False)  # noqa: S603
        if ended.returncode:
            raise Refused(f"R ended with status {ended.returncode}")
        return {"target": np.loadtxt(answer, ndmin=1)}

    return complete


def pypots(name: str) -> Any:
    """One of PyPOTS's networks: visits are its steps, and validation targets, where some are given, stop it."""

    def complete(arrays: dict[str, Any], seed: int, settings: dict[str, float]) -> dict[str, Any]:
        from pypots.utils.random import set_random_seed  # type: ignore[import-not-found]

        set_random_seed(seed)
        table, windows = arrays["table"], arrays["windows"]
        known = ~np.isnan(arrays["checked"])
        opened = table.copy()
        opened[known, 0] = arrays["checked"][known]
        shown = _in_windows(table, windows)
        looked_at = {"X": shown, "X_ori": _in_windows(opened, windows)} if known.any() else None
        network = _network(name, shown.shape[1:], settings, looks=looked_at is not None)
        network.fit({"X": shown}, looked_at)
        samples = int(settings.get("samples", 0))
        found = {"target": _answers(network, table, windows, samples)}
        return found | ({"opened": _answers(network, opened, windows, samples)} if known.any() else {})

    return complete


def _network(name: str, shape: tuple[int, int], settings: dict[str, float], *, looks: bool) -> Any:
    """A network as PyPOTS's examples build it, CSDI as its paper does."""
    import pypots.imputation as made  # type: ignore[import-not-found]

    shapes: dict[str, dict[str, Any]] = {
        "SAITS": {"n_layers": 2, "d_model": 256, "n_heads": 4, "d_k": 64, "d_v": 64, "d_ffn": 128, "dropout": 0.1},
        "BRITS": {"rnn_hidden_size": 128},
        "HELIX": {},
        "CSDI": {
            "n_layers": 4,
            "n_heads": 8,
            "n_channels": 64,
            "d_time_embedding": 128,
            "d_feature_embedding": 16,
            "d_diffusion_embedding": 128,
        },
    }
    epochs = int(settings["epochs"])
    stop = {"patience": min(int(settings["patience"]), epochs)} if looks else {}
    training = {"epochs": epochs, "model_saving_strategy": None, "verbose": False, "device": "cpu"}
    return getattr(made, name)(n_steps=shape[0], n_features=shape[1], **shapes[name], **training, **stop)


def _in_windows(table: Any, windows: Any) -> Any:
    """Windows x visits x columns, empty visits behind."""
    found = np.full((len(windows), windows[:, 1].max(), table.shape[1]), np.nan, dtype=np.float32)
    for place, (start, length, _, _) in enumerate(windows):
        found[place, :length] = table[start : start + length]
    return found


def _answers(network: Any, table: Any, windows: Any, samples: int) -> Any:
    """The target of every visit; where it is visible, from a pass in which it was hidden."""
    visible = ~np.isnan(table[:, 0])
    turn = np.cumsum(visible) % TURNS
    target = _predicted(network, table, windows, samples)
    for each in range(TURNS):
        hidden = visible & (turn == each)
        blank = table.copy()
        blank[hidden, 0] = np.nan
        target[hidden] = _predicted(network, blank, windows, min(samples, 1))[hidden]
    return target


def _predicted(network: Any, table: Any, windows: Any, samples: int) -> Any:
    more = {"n_sampling_times": samples} if samples else {}
    found = network.predict({"X": _in_windows(table, windows)}, **more)["imputation"]
    found = np.median(found, axis=1) if samples else found
    target = np.zeros(len(table))
    for place, (start, _, first, end) in enumerate(windows):
        target[start + first : start + end] = found[place, first:end, 0]
    return target


IN_R = {name: in_r(name) for name in ("r-mice", "r-mice-2l", "r-missforest")}
NETWORKS = {f"pypots-{name.lower()}": pypots(name) for name in ("SAITS", "BRITS", "CSDI", "HELIX")}
METHODS = {"hyperimpute": hyperimpute, "gain": gain, "miceforest": miceforest, **NETWORKS, **IN_R}
OLD_PANDAS = {"hyperimpute", "gain", "miceforest"}


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as reason:
        sys.exit(f"outside_worker: {reason}")
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        sys.exit(f"outside_worker: {type(error).__name__} in {place.name}, line {place.lineno}")
