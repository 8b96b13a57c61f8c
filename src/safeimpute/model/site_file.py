"""A site's file of sums: written where the patients are, verified where the files are joined."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused, MissingExtra, ModelFolderError, OptionError
from safeimpute.machine.files import finished_file, plain_text, require_new
from safeimpute.machine.looks_log import state_folder
from safeimpute.model.folder import SavedModel
from safeimpute.model.frozen import FrozenModel, score_visits
from safeimpute.model.manifest import own_checksum, private_key, public_key
from safeimpute.model.site_noise import Noisy, add_noise, noise_cap, noise_variance, noisy_places
from safeimpute.model.site_sums import cells_of, chances_of, patient_parts, together, withhold
from safeimpute.model.whole_table import BINS, RATIOS, TableSums, batches, calibratable, summed, sums_of_scored
from safeimpute.selection.sums import PATIENT_MOMENTS, VISIT_MOMENTS, Sums
from safeimpute.settings import Settings
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.imputations import refuse_known_values
from safeimpute.visits.new_visits import read_new_visits
from safeimpute.visits.tables import read_visits

FORMAT = 1
CONTEXT = b"safeimpute site sums\n"  # a signature of something else never passes for one of these
LONGEST_NAME = 40
MOST_BYTES = 2**26  # of a file that is read; a site's has about a hundred thousand for each group


@dataclass(frozen=True)
class SiteSums:
    """What leaves a site."""

    table: TableSums | None  # none where noise is added
    shown: dict[int, tuple[int, ...]]  # per group the thresholds whose sums are as counted
    noisy: dict[int, Noisy]


def site_sums(
    visits: VisitArrays, model: FrozenModel, settings: Settings, least: int, epsilon: float | None
) -> tuple[SiteSums, NDArray[np.uint64]]:
    """The sums of a site; and each patient's hash with that of its part, by which a later file is held against this.

    Raises
    ------
    GuaranteeRefused
        The site has fewer patients than a cell needs, or noise is not offered for the model's claim.
    """
    if epsilon is not None and settings.claim == "later":
        raise GuaranteeRefused(
            "noise is not offered under the claim 'later'. Leave --epsilon out, or fit another claim."
        )
    tables, cells, chances, hashes = [], [], [], []
    for part in batches(visits):
        scored = score_visits(part, model, measured_too=True)
        tables.append(sums_of_scored(part, scored, model, settings))
        cells.append(cells_of(part, scored, model, settings))
        chances.append(chances_of(part, scored))
        hashes.append(patient_parts(part, scored))
    every, found = together(cells), np.concatenate(hashes)
    if epsilon is not None:
        return SiteSums(None, {}, add_noise(every, model, epsilon)), found
    table = summed(tables)
    if least <= 1:
        shown = {group: tuple(range(len(several[0].grid))) for group, several in table.groups.items()}
        return SiteSums(table, shown, {}), found
    return SiteSums(*withhold(table, every, together(chances), least), {}), found


@dataclass(frozen=True)
class SiteFile:
    """A verified file."""

    site: str
    content: Mapping[str, Any]
    sums: SiteSums


@dataclass(frozen=True)
class AtSite:
    """A coordinator's model beside a site's visits."""

    saved: SavedModel
    model: FrozenModel
    visits: VisitArrays
    inputs: tuple[Path, Path]


def open_site(model: Path, visits: Path, columns: Mapping[str, str] | None = None) -> AtSite:
    """Read both; the model is the same folder at every site, `columns` names in the file -> names it knows."""
    saved, frozen = calibratable(model)
    if saved.settings.allowed_error.graded:
        raise GuaranteeRefused("a site's sums count values as right or wrong, and this model counts costs.")
    arrays = read_new_visits(read_visits(visits, dict(columns or {})), saved.reading).arrays
    refuse_known_values(arrays, visits, model, model.resolve().parent)
    return AtSite(saved, frozen, arrays, (model, visits))


def write_site(
    at: AtSite,
    out: Path,
    *,
    site: str,
    least: int = 10,
    epsilon: float | None = None,
    key_file: Path | None = None,
    force: bool = False,
) -> str:
    """Write a site's sums; no row and no identifier is among them.

    Parameters
    ----------
    at : AtSite
        Model and visits.
    out : Path
        The file of sums.
    site : str
        The site's name in the joined promise.
    least : int
        Patients that every cell must rest on; 1 withholds nothing.
    epsilon : float, optional
        Privacy budget of noise; none by default.
    key_file : Path, optional
        Private key (PEM, Ed25519) to sign with.
    force : bool
        Replace an earlier file there.

    Returns
    -------
    str
        A warning where no record of earlier files is kept; empty elsewhere.
    """
    if not site.strip() or plain_text(site, LONGEST_NAME) != site:
        raise OptionError(f"--site: give the site a plain name of at most {LONGEST_NAME} characters.")
    if least < 1 or (epsilon is not None and not 0 < epsilon <= 100):
        raise OptionError("--least is a whole number from 1, --epsilon above 0 and at most 100.")
    require_new(out, force=force, inputs=at.inputs)
    key = None if key_file is None else private_key(key_file)
    sums, parts = site_sums(at.visits, at.model, at.saved.settings, least, epsilon)
    warning = _enter(at.saved, parts, least, noise=epsilon is not None)
    content = _content(at.saved, site, least, epsilon, sums)
    digest = content["digest"] = own_checksum(content)
    if key is not None:
        content["signature"] = base64.b64encode(key.sign(CONTEXT + str(digest).encode())).decode()
    with finished_file(out, force=force) as partial:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    return warning


def _content(saved: SavedModel, site: str, least: int, epsilon: float | None, sums: SiteSums) -> dict[str, Any]:
    told = {
        "format": FORMAT,
        "site": site,
        "model": saved.identity,
        "promise": promise_of(saved.settings),
        "least": least,
        "epsilon": epsilon,
        "table": None if sums.table is None else sums.table.to_dict(),
        "shown": {str(group): list(each) for group, each in sums.shown.items()},
        "noisy": {str(group): asdict(each) for group, each in sums.noisy.items()},
    }
    return dict(json.loads(json.dumps(told)))


def promise_of(settings: Settings) -> dict[str, Any]:
    """What is promised, as every file repeats it."""
    return {
        "lab": settings.target,
        "tolerance": str(settings.tolerance),
        "level": settings.fdr,
        "claim": settings.claim,
        "promise": settings.promise,
        "confidence": settings.confidence,
        "groups": list(settings.groups),
    }


def _enter(saved: SavedModel, parts: NDArray[np.uint64], least: int, *, noise: bool) -> str:
    """Refuse a second file about the same patients: what two files differ by would tell of those who changed.

    The same visits may be told again as they were; noise again would spend its budget again. Models joined from one
    fit have its thresholds, so they count as one. The record stands in the user's state folder, hashes only.
    """
    folder = state_folder()
    if folder is None:
        return "No record of earlier files is kept (SAFEIMPUTE_STATE=off): send no two files about the same patients."
    place = folder / "sites"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    grid = np.ascontiguousarray(saved.tensors["reference.thresholds"]).tobytes()
    fit = hashlib.sha256(saved.fingerprint.encode() + grid).hexdigest()[:32]
    parts = np.unique(parts, axis=0)
    told = f"{hashlib.sha256(parts.tobytes()).hexdigest()[:16]}-{'noise' if noise else least}"
    for path in sorted(place.glob(f"{fit}-*.npy")):
        same_kind = path.stem.endswith("-noise") == noise
        repeated = not noise and path.stem == f"{fit}-{told}"
        if same_kind and not repeated and np.isin(parts[:, 0], np.load(path, allow_pickle=False)[:, 0]).any():
            raise GuaranteeRefused(
                "a file about some of these patients was written for this fit before, and "
                + ("noise anew would spend its budget again" if noise else "two files that differ tell of who changed")
                + f". Send the earlier one; if it was never sent or is deleted everywhere, remove {path}."
            )
    np.save(place / f"{fit}-{told}.npy", parts)
    return ""


def read_site(path: Path, saved: SavedModel, frozen: FrozenModel, keys: Path | None = None) -> SiteFile:
    """A file of sums, verified; each fault is a refusal that names the file."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(MOST_BYTES))
        version, digest = content["format"], content["digest"]
        site = plain_text(str(content["site"]), LONGEST_NAME)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ModelFolderError(f"{path.name!r} is no readable file of sums. Ask the site for it again.") from None
    if version != FORMAT:
        raise ModelFolderError(
            f"{path.name!r} has format {plain_text(version, 20)}; this version reads {FORMAT}. Use one version at all "
            "sites."
        )
    said = {name: each for name, each in content.items() if name not in ("digest", "signature")}
    if digest != own_checksum(said):
        raise ModelFolderError(
            f"{path.name!r} was changed after it was written (its digest differs). Ask the site for it again."
        )
    if keys is not None:
        _require_signed(path, site, content, keys)
    if content.get("model") != saved.identity:
        raise ModelFolderError(f"{path.name!r} comes from another model. Give every site this model's folder.")
    if content.get("promise") != json.loads(json.dumps(promise_of(saved.settings))):
        raise ModelFolderError(f"{path.name!r} speaks of another promise than the model's.")
    try:
        sums = _sums_of(content)
        possible = _possible(sums, frozen, saved.settings, content["epsilon"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
        possible = False
    if not possible:
        raise ModelFolderError(f"{path.name!r} holds sums that no visits can have. Ask the site for it again.")
    return SiteFile(site, content, sums)


def _require_signed(path: Path, site: str, content: Mapping[str, Any], keys: Path) -> None:
    try:
        from cryptography.exceptions import InvalidSignature
    except ModuleNotFoundError:
        raise MissingExtra("Signing", "sign") from None
    place = keys / f"{site}.pub"
    if Path(site).name != site or not place.is_file():
        raise ModelFolderError(f"{path.name!r}: there is no public key {site}.pub in {keys.name!r}.")
    try:
        signature = base64.b64decode(str(content.get("signature", "")), validate=True)
        public_key(place).verify(signature, CONTEXT + str(content["digest"]).encode())
    except (InvalidSignature, ValueError):
        raise ModelFolderError(f"{path.name!r} is not signed by the owner of {place.name!r}.") from None


def _sums_of(content: Mapping[str, Any]) -> SiteSums:
    table = content["table"]
    shown = {int(group): tuple(each) for group, each in content["shown"].items()}
    noisy = {
        int(group): Noisy(
            tuple(each["places"]), each["good"], each["risky"], float(each["variance"]), float(each["cap"])
        )
        for group, each in content["noisy"].items()
    }
    read = None if table is None else TableSums.from_dict(table)
    return SiteSums(read, shown, noisy)


def _possible(sums: SiteSums, at: FrozenModel, settings: Settings, epsilon: object) -> bool:
    """Whether some visits could have come to these sums."""
    grids = {group: tuple(at.reference.grid(group).tolist()) for group in at.cutoffs}
    if sums.table is None:
        return set(sums.noisy) == set(grids) and all(
            each.places == noisy_places(len(grids[group]))
            and len(each.places) == len(each.good) == len(each.risky)
            and all(isinstance(one, int) for one in (*each.good, *each.risky))
            and (each.cap, each.variance) == (noise_cap(at), noise_variance(noise_cap(at), float(str(epsilon))))
            for group, each in sums.noisy.items()
        )
    table = sums.table
    lists = (table.measured, table.unmeasured, table.chance, table.ratios, table.totals)
    counts = (table.visits, table.patients, table.outside, *(each for some in lists for each in some))
    return (
        set(table.groups) == set(sums.shown) == set(grids)
        and not sums.noisy
        and all(isinstance(each, int) and each >= 0 for each in counts)
        and [len(each) for each in lists] == [BINS, BINS, BINS, len(RATIOS) + 1, 3]
        and all(len(several) == 1 + (settings.claim == "later") for several in table.groups.values())
        and all(
            _possible_sums(each, grids[group], table.patients) and _increasing(sums.shown[group], len(each.grid))
            for group, several in table.groups.items()
            for each in several
        )
    )


def _increasing(shown: tuple[int, ...], count: int) -> bool:
    """Thresholds in order, the last of all among them."""
    return shown[-1] == count - 1 and shown[0] >= 0 and all(a < b for a, b in pairwise(shown))


def _possible_sums(sums: Sums, grid: tuple[float, ...], patients: int) -> bool:
    visit, patient = sums.of_visits, sums.of_patients
    if sums.grid != grid or set(visit) != set(VISIT_MOMENTS) or set(patient) != set(PATIENT_MOMENTS):
        return False
    rows = [sums.asked, *visit.values(), *patient.values()]
    if any(len(row) != len(grid) or not all(isinstance(each, int) and each >= 0 for each in row) for row in rows):
        return False
    parts = [("risky_weight", "weight"), ("risky_square", "weight_square"), ("risky", "visits"), ("expected", "weight")]
    inside = all(a <= b for part, of in parts for a, b in zip(visit[part], visit[of], strict=True))  # type: ignore[index]
    inside = inside and all(a <= b for a, b in zip(patient["risky_square"], patient["size_square"], strict=True))
    grows = all(a <= b for row in rows for a, b in pairwise(row))
    size = sums.effective_size
    last = visit["weight"][-1] if grid else 0
    whole = last <= sums.totals[0] and (not grid or patient["size_square"][-1] <= sums.totals[2])
    return inside and grows and whole and size.patients <= patients + 1 and size.patients <= size.visits + 1
