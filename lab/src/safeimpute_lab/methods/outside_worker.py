"""Completes a table's first column with the hyperimpute package; runs in the baselines environment, by itself.

Called as: outside_worker.py METHOD SEED GIVEN.parquet ANSWER.parquet [SETTING=NUMBER ...]. Imports nothing of
safeimpute. Its own lines on stderr carry a prefix and hold no value of the table; other lines are never shown.
"""

import functools
import os
import signal
import sys
import threading
import traceback
from typing import Any

TARGET = "0"
NEVER_FITTED = -9_999_999  # the score HyperImpute gives a learner that raised an error


class Refused(Exception):
    """A reason that may be shown as it is."""


def main(method: str, seed: str, given: str, answer: str, *settings: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _require_versions()
    import pandas as pd
    import torch  # noqa: F401 - loaded after pyarrow or scikit-learn, its matrix products take 50 times as long

    numbers = {name: float(value) for name, value in (each.split("=") for each in settings)}
    target = METHODS[method](pd.read_parquet(given), int(seed), numbers)
    pd.DataFrame({"target": target}).to_parquet(answer)


def _end_with_parent() -> None:
    """The parent keeps our standard input open for as long as it lives."""
    os.read(0, 1)  # not sys.stdin, whose lock a thread may not hold when Python shuts down
    os.killpg(0, signal.SIGKILL)


def _require_versions() -> None:
    """Under pandas 3 hyperimpute's assignments are lost without a word and the columns' means come back."""
    import pandas as pd

    if int(pd.__version__.split(".")[0]) >= 3:
        raise Refused(f"pandas {pd.__version__} is installed; hyperimpute needs pandas < 3. Run `make baselines`.")


def hyperimpute(table: Any, seed: int, settings: dict[str, float]) -> Any:
    """HyperImpute with its defaults; visible targets are answered by the target's last learner."""
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
        return target
    own = learner.predict(completed.drop(columns=TARGET)[visible]).to_numpy().reshape(-1)
    encoder = runner.encoders.get(TARGET)  # a target of very few values is treated as classes
    target[visible] = own if encoder is None else encoder.inverse_transform(own.astype(int))
    return target


def gain(table: Any, seed: int, settings: dict[str, float]) -> Any:
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
    shown = torch.tensor(table.to_numpy())
    blank = shown.clone()
    blank[:, 0] = torch.nan
    network.fit(shown)
    return network.transform(blank)[:, 0].numpy()


METHODS = {"hyperimpute": hyperimpute, "gain": gain}


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as reason:
        sys.exit(f"outside_worker: {reason}")
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        sys.exit(f"outside_worker: {type(error).__name__} in {place.name}, line {place.lineno}")
