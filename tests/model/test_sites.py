"""Several sites, one promise: equal to the pooled calculation, nobody readable, forged and foreign files refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.scored_cohorts import TOLERANCE, cohort_of, fit_visits
from safeimpute.cli import app
from safeimpute.errors import GuaranteeRefused, ModelFolderError, OptionError
from safeimpute.model.manifest import own_checksum, verified_manifest
from safeimpute.model.network import heterogeneity, join_files, transport
from safeimpute.model.site_file import open_site, write_site
from safeimpute.model.site_noise import Noisy, noisy_cells, sums_of_noisy
from safeimpute.model.site_sums import GOOD, RISKY, Cells, filled, shown_places
from safeimpute.model.whole_table import calibrate_files
from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.ledger import Entries, Ledger, risk_grid, sums_of
from safeimpute.selection.sums import PATIENT_MOMENTS, UNIT, VISIT_MOMENTS, Sums

SITES = 3
KEPT = ("scoring", "files")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A coordinator's model, the visits of three sites, and all of them together."""
    folder = tmp_path_factory.mktemp("sites")
    whole = cohort_of(600)
    fit_visits(whole.filter(pl.col("subject_id") <= 250), tolerance=TOLERANCE).save(folder / "model")
    whole.write_parquet(folder / "whole.parquet")
    for k in range(SITES):
        whole.filter(pl.col("subject_id") % SITES == k).write_parquet(folder / f"site{k}.parquet")
    return folder


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file written by another test is known."""
    monkeypatch.setenv("SAFEIMPUTE_STATE", str(tmp_path / "state"))


def write_sums(model: Path, visits: Path, out: Path, **told: Any) -> None:
    """A site's file of sums."""
    write_site(open_site(model, visits), out, **told)


def files_of(place: Path, folder: Path, **told: Any) -> list[Path]:
    """Every site's file of sums."""
    found = [folder / f"site{k}.json" for k in range(SITES)]
    for k, path in enumerate(found):
        write_sums(place / "model", place / f"site{k}.parquet", path, site=f"site {k}", **told)
    return found


def test_joined_equals_pooled_to_the_byte_where_nothing_is_withheld(place: Path, tmp_path: Path) -> None:
    found = join_files(place / "model", files_of(place, tmp_path, least=1)[::-1], tmp_path / "joined")
    calibrate_files(place / "model", place / "whole.parquet", tmp_path / "pooled")
    joined, pooled = (verified_manifest(tmp_path / each) for each in ("joined/model", "pooled"))
    assert {name: joined[name] for name in KEPT} == {name: pooled[name] for name in KEPT}  # type: ignore[literal-required]
    told = {name: each for name, each in joined["calibrated_on"].items() if name != "sites"}
    assert told == pooled["calibrated_on"]
    assert found.cutoffs["0"].risk is not None
    assert [each.site for each in found.sites] == ["site 2", "site 1", "site 0"]


def test_the_commands(place: Path, tmp_path: Path) -> None:
    def typed(*told: object) -> str:
        done = CliRunner().invoke(app, [str(each) for each in told], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    for k in range(SITES):
        said = typed(
            "site", place / "model", place / f"site{k}.parquet", "-o", tmp_path / f"{k}.json", "--site", f"s{k}"
        )
        assert "Nothing is promised for a site alone" in said
        assert "1,000 measured values" in said
    said = typed("join", place / "model", *(tmp_path / f"{k}.json" for k in range(SITES)), "-o", tmp_path / "all")
    assert "Joint cut-off" in said
    assert {"model", "sites.json", "sites.txt", "sites.png"} <= {each.name for each in (tmp_path / "all").iterdir()}
    assert "; picture:" in said
    assert "cut-off" in typed("doctor", tmp_path / "all" / "model")


def test_no_picture_is_named_where_nothing_keeps_the_level(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safeimpute.report.sites_figure.draw_sites", lambda _folder: [])
    asked = ["join", place / "model", *files_of(place, tmp_path, least=1), "-o", tmp_path / "all"]
    said = CliRunner().invoke(app, [str(each) for each in asked], catch_exceptions=False).output
    assert "Model:" in said
    assert "; picture:" not in said


def test_a_file_holds_no_identifier_and_no_row(place: Path, tmp_path: Path) -> None:
    path = files_of(place, tmp_path)[0]
    told = path.read_text()
    frame = pl.read_parquet(place / "site0.parquet")
    assert "subject_id" not in told
    numbers = set(_numbers(json.loads(told)["table"]))
    values = {round(each * UNIT) for each in frame["hba1c"].drop_nulls().to_list() if each % 1}
    assert values
    assert not numbers & values
    assert path.stat().st_size < 100_000


def _numbers(told: Any) -> list[int]:
    if isinstance(told, dict):
        return [one for each in told.values() for one in _numbers(each)]
    if isinstance(told, list):
        return [one for each in told for one in _numbers(each)]
    return [told] if isinstance(told, int) else []


def changed(path: Path, edit: Callable[[dict[str, Any]], object], *, sealed: bool = True) -> None:
    """A file edited by somebody, who also makes its digest fit or not."""
    content = json.loads(path.read_text())
    edit(content)
    if sealed:
        content["digest"] = own_checksum({name: each for name, each in content.items() if name != "digest"})
    path.write_text(json.dumps(content))


def visits_of(content: dict[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = content["table"]["groups"]["0"][0]["of_visits"]
    return found


FORGED: dict[str, tuple[Callable[[dict[str, Any]], object], bool, str]] = {
    "edited": (lambda told: told.update(site="other"), False, "digest"),
    "version": (lambda told: told.update(format=9), True, "format 9"),
    "model": (lambda told: told.update(model="0" * 64), True, "another model"),
    "promise": (lambda told: told["promise"].update(level=0.3), True, "another promise"),
    "negative": (lambda told: visits_of(told)["risky_weight"].__setitem__(0, -1), True, "no visits can have"),
    "more risky than all": (
        lambda told: visits_of(told).update(risky_weight=[2 * each for each in visits_of(told)["weight"]]),
        True,
        "no visits can have",
    ),
    "falling": (lambda told: visits_of(told)["weight"].reverse(), True, "no visits can have"),
    "no number": (lambda told: visits_of(told)["weight"].__setitem__(3, "many"), True, "no visits can have"),
    "other thresholds": (lambda told: told["table"]["groups"]["0"][0]["grid"].__setitem__(0, 0.0), True, "no visits"),
    "a sum left out": (lambda told: visits_of(told).pop("risky"), True, "no visits can have"),
    "a part left out": (lambda told: told.pop("table"), True, "no visits can have"),
    "too many patients": (lambda told: told["table"].update(patients=3), True, "no visits can have"),
}


@pytest.mark.parametrize("forgery", list(FORGED))
def test_forged_and_foreign_files_are_refused(place: Path, tmp_path: Path, forgery: str) -> None:
    edit, sealed, why = FORGED[forgery]
    files = files_of(place, tmp_path, least=1)[:2]
    changed(files[0], edit, sealed=sealed)
    with pytest.raises(ModelFolderError, match=why):
        join_files(place / "model", files, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_repeated_sites_and_repeated_sums_are_refused(place: Path, tmp_path: Path) -> None:
    files = files_of(place, tmp_path)
    with pytest.raises(ModelFolderError, match="given twice"):
        join_files(place / "model", [*files, files[0]], tmp_path / "joined")
    changed(files[0], lambda told: told.update(site="new name"))
    write_sums(place / "model", place / "site0.parquet", tmp_path / "again.json", site="site 0")
    with pytest.raises(ModelFolderError, match="under a new name"):
        join_files(place / "model", [*files, tmp_path / "again.json"], tmp_path / "joined")


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"format": 1}', "[" * 100_000])
def test_what_is_no_file_of_sums_is_refused(place: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(ModelFolderError, match="no readable file of sums"):
        join_files(place / "model", [tmp_path / "odd.json"], tmp_path / "joined")


def test_names_and_sizes_are_checked(place: Path, tmp_path: Path) -> None:
    for told in ({"site": " "}, {"site": "a\nb"}, {"site": "a", "least": 0}, {"site": "a", "epsilon": -1.0}):
        with pytest.raises(OptionError):
            write_sums(place / "model", place / "site0.parquet", tmp_path / "f.json", **told)


def test_signatures(place: Path, tmp_path: Path) -> None:
    keys = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives import serialization as form

    (tmp_path / "keys").mkdir()
    pairs = [keys.Ed25519PrivateKey.generate() for _ in range(2)]
    for k, key in enumerate(pairs):
        secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        (tmp_path / f"{k}.pem").write_bytes(secret)
        public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / "keys" / f"site{k}.pub").write_bytes(public)
    files = [tmp_path / f"{k}.json" for k in range(2)]
    for k, path in enumerate(files):
        visits = place / f"site{k}.parquet"
        write_sums(place / "model", visits, path, site=f"site{k}", key_file=tmp_path / f"{k}.pem")
    join_files(place / "model", files, tmp_path / "joined", keys=tmp_path / "keys")
    (tmp_path / "keys" / "site0.pub").write_bytes((tmp_path / "keys" / "site1.pub").read_bytes())
    with pytest.raises(ModelFolderError, match="not signed by the owner"):
        join_files(place / "model", files, tmp_path / "again", keys=tmp_path / "keys")


def test_two_files_that_differ_by_a_patient_cannot_both_be_written(place: Path, tmp_path: Path) -> None:
    """The attack: a site's file with and without one patient; what they differ by would be that patient."""
    frame = pl.read_parquet(place / "site0.parquet")
    frame.filter(pl.col("subject_id") != frame["subject_id"][0]).write_parquet(tmp_path / "without.parquet")
    model, first = place / "model", tmp_path / "first.json"
    write_sums(model, place / "site0.parquet", first, site="a")
    without, whole = tmp_path / "without.parquet", place / "site0.parquet"
    for visits, site, least in ((without, "a", 10), (without, "another name", 10), (whole, "a", 20)):
        with pytest.raises(GuaranteeRefused, match="differ tell of who changed"):
            write_sums(model, visits, tmp_path / "second.json", site=site, least=least)
    assert not (tmp_path / "second.json").exists()
    write_sums(model, place / "site0.parquet", tmp_path / "same.json", site="a")
    assert (tmp_path / "same.json").read_bytes() == first.read_bytes(), "the same visits may be told again"
    write_sums(model, place / "site1.parquet", tmp_path / "others.json", site="b")


def test_without_a_record_the_difference_is_the_patient(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same attack where no record is kept: it works, cells of ten or not, which is why the site is warned."""
    monkeypatch.setenv("SAFEIMPUTE_STATE", "off")
    frame = pl.read_parquet(place / "site0.parquet")
    first = frame.filter(pl.col("hba1c").is_not_null())["subject_id"][0]
    one = frame.filter(pl.col("subject_id") == first)
    frame.filter(pl.col("subject_id") != first).write_parquet(tmp_path / "without.parquet")
    counted = []
    for visits in (place / "site0.parquet", tmp_path / "without.parquet"):
        warning = write_site(open_site(place / "model", visits), tmp_path / f"{visits.stem}.json", site="a")
        assert "send no two files about the same patients" in warning
        counted.append(visits_of(json.loads((tmp_path / f"{visits.stem}.json").read_text()))["visits"][-1] / UNIT)
    assert 0 < counted[0] - counted[1] <= one["hba1c"].count()


def test_noise_is_spent_once(place: Path, tmp_path: Path) -> None:
    write_sums(place / "model", place / "site0.parquet", tmp_path / "1.json", site="a", epsilon=1.0)
    told = json.loads((tmp_path / "1.json").read_text())
    assert told["table"] is None
    assert told["shown"] == {}
    with pytest.raises(GuaranteeRefused, match="spend its budget again"):
        write_sums(place / "model", place / "site0.parquet", tmp_path / "2.json", site="a", epsilon=1.0)


def test_noise_told_smaller_than_it_is_is_refused(place: Path, tmp_path: Path) -> None:
    write_sums(place / "model", place / "site0.parquet", tmp_path / "1.json", site="a", epsilon=1.0)
    changed(tmp_path / "1.json", lambda told: told["noisy"]["0"].update(variance=0.01))
    with pytest.raises(ModelFolderError, match="no visits can have"):
        join_files(place / "model", [tmp_path / "1.json"], tmp_path / "joined")


def test_a_tiny_site_writes_nothing(place: Path, tmp_path: Path) -> None:
    frame = pl.read_parquet(place / "site0.parquet")
    frame.filter(pl.col("subject_id") <= 36).write_parquet(tmp_path / "tiny.parquet")
    with pytest.raises(GuaranteeRefused, match="fewer than 10 patients"):
        write_sums(place / "model", tmp_path / "tiny.parquet", tmp_path / "f.json", site="a")
    assert not (tmp_path / "f.json").exists()


def test_a_new_site_without_measured_values_is_told_what_to_expect(place: Path, tmp_path: Path) -> None:
    frame = pl.read_parquet(place / "site0.parquet").with_columns(glucose=pl.col("glucose") * 1.3)
    frame.with_columns(hba1c=pl.lit(None, pl.Float64)).write_parquet(tmp_path / "new.parquet")
    said = transport(open_site(place / "model", tmp_path / "new.parquet"))
    assert said[0].startswith("glucose"), "what moved most comes first"
    assert any("Nothing is promised for a site alone" in each for each in said)
    assert [each.rpartition(": ")[2] for each in said[-3:]] == ["8 % or higher", "2 % or higher", "1 % or higher"]
    told = ["site", place / "model", tmp_path / "new.parquet", "-o", tmp_path / "f.json", "--site", "new"]
    done = CliRunner().invoke(app, [str(each) for each in told])
    assert isinstance(done.exception, GuaranteeRefused)
    assert "glucose" in done.output


def test_noise_joins_with_counted_sums(place: Path, tmp_path: Path) -> None:
    files = files_of(place, tmp_path, least=10)
    write_sums(place / "model", place / "site0.parquet", files[0], site="site 0", epsilon=50.0, force=True)
    found = join_files(place / "model", files, tmp_path / "joined")
    assert found.cutoffs["0"].risk is not None
    exact = join_files(place / "model", files[1:], tmp_path / "two")
    assert exact.cutoffs["0"].risk is not None


def drawn(rng: np.random.Generator, patients: int) -> tuple[Entries, Ledger, Cells]:
    """A site's visits, as a ledger and as cells."""
    patient = np.repeat(np.arange(patients), rng.integers(1, 8, patients))
    risk, measured = rng.random(len(patient)) ** 2, rng.random(len(patient)) < 0.6
    risky, weight = rng.random(len(patient)) < risk, np.exp(0.5 * rng.standard_normal(len(patient)))
    grid = risk_grid(np.linspace(0.0, 0.98, 500) ** 2)
    entries = Entries(patient[measured], risk[measured], weight[measured], risky[measured])
    place = np.searchsorted(grid, risk, side="left")
    kind, nothing = np.where(measured, np.where(risky, RISKY, GOOD), 2), np.zeros(len(patient), np.int64)
    cells = Cells(patient.astype(np.uint64), nothing, place, kind, weight, nothing)
    return entries, Ledger(entries, grid, risk[~measured]), cells


@pytest.mark.parametrize("seed", range(5))
def test_every_shown_difference_rests_on_enough_patients(seed: int) -> None:
    entries, ledger, cells = drawn(np.random.default_rng(seed), 150)
    ends = shown_places(cells, len(ledger.thresholds), 10, (GOOD, RISKY, 2))
    told = filled(sums_of(ledger), ends)
    edges = [-np.inf, *ledger.thresholds[list(ends)]]
    assert len(ends) > 2
    for low, high in pairwise(edges):
        there = (entries.risk > low) & (entries.risk <= high)
        for risky in (True, False):
            assert len(np.unique(entries.patient[there & (entries.risky == risky)])) >= 10
    # inside a cell nothing moves but by what its ends say: the same file from any visits with the same ends
    again = filled(_scrambled(sums_of(ledger), ends), ends)
    assert again == told


def _scrambled(sums: Sums, ends: tuple[int, ...]) -> Sums:
    """Other numbers wherever a threshold is not shown."""

    def other(row: list[int]) -> list[int]:
        return [each if place in ends else 7 * place for place, each in enumerate(row)]

    visits, patients = (
        {name: other(each) for name, each in many.items()} for many in (sums.of_visits, sums.of_patients)
    )
    return replace(sums, asked=other(sums.asked), of_visits=visits, of_patients=patients)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_withheld_never_makes_the_count_easier(seed: int) -> None:
    _, ledger, cells = drawn(np.random.default_rng(seed), 80)
    true = sums_of(ledger)
    told = filled(true, shown_places(cells, len(ledger.thresholds), 10, (GOOD, RISKY, 2)))
    for alpha in (0.05, 0.2, 0.5):
        counted = [each.visit("risky_weight") - alpha * each.visit("weight") for each in (told, true)]
        assert (counted[0] >= counted[1] - 1e-9).all()
        for promise in ("average", "confident"):
            rule = Rule("unmeasured", alpha, promise)
            withheld, whole = (find_cutoff(each, rule).risk for each in (told, true))
            assert withheld is None or (whole is not None and withheld <= whole)
    for name in VISIT_MOMENTS:
        assert (np.diff(told.visit(name)) >= 0).all()
    for moment in PATIENT_MOMENTS:
        assert (np.diff(told.patient(moment)) >= 0).all()


def test_noise_is_as_wide_as_told_and_one_patient_moves_sums_by_at_most_the_cap() -> None:
    _, ledger, cells = drawn(np.random.default_rng(1), 300)
    known = cells.at(cells.kind <= RISKY)
    less = known.at(known.patient != 3)
    grids, cap = {0: len(ledger.thresholds)}, 4.0

    def told(some: Cells, seed: int, epsilon: float) -> Noisy:
        return noisy_cells(some, grids, cap, epsilon, np.random.default_rng(seed))[0]

    one, other = told(known, 5, 1.0), told(less, 5, 1.0)  # the same noise: the difference is the patient
    moved = sum(abs(a - b) for a, b in zip([*one.good, *one.risky], [*other.good, *other.risky], strict=True)) / UNIT
    assert 0 < moved <= cap
    true = told(known, 0, 1e6)
    errors = [np.array(told(known, seed, 1.0).risky) / UNIT - np.array(true.risky) / UNIT for seed in range(200)]
    assert np.var(errors) == pytest.approx(one.variance, rel=0.15)
    assert one.variance == pytest.approx(2 * cap**2, rel=0.01)


def test_noise_is_allowed_for() -> None:
    """With noise hardly any cut-off is larger than without; with more sites it costs less than their sum."""
    rng, larger = np.random.default_rng(3), 0
    for _ in range(40):
        _, ledger, cells = drawn(rng, 400)
        noisy = noisy_cells(cells.at(cells.kind <= RISKY), {0: len(ledger.thresholds)}, 8.0, 2.0, rng)[0]
        told = find_cutoff(sums_of_noisy(noisy, ledger.thresholds.tolist()), Rule("unmeasured", 0.2)).risk or 0.0
        larger += told > (find_cutoff(sums_of(ledger), Rule("unmeasured", 0.2)).risk or 0.0)
    assert larger <= 2
    together = reduce(Noisy.plus, [noisy, noisy])
    assert together.variance == 2 * noisy.variance


def test_heterogeneity_finds_the_site_that_differs() -> None:
    rng = np.random.default_rng(0)
    error = np.full(8, 0.02)
    calm = [heterogeneity(0.1 + error * rng.standard_normal(8), error)[2] for _ in range(400)]
    assert np.mean(np.array(calm, dtype=float) < 0.05) == pytest.approx(0.05, abs=0.03)
    shares = np.full(8, 0.1)
    shares[3] = 0.25
    distance, _, chance = heterogeneity(shares, error)
    assert chance is not None
    assert chance < 1e-6
    assert int(np.nanargmax(np.abs(distance))) == 3
    assert heterogeneity(np.array([0.1, np.nan]), np.array([0.1, 0.0]))[1] is None


def test_a_site_that_differs_is_named(place: Path, tmp_path: Path) -> None:
    """Values of one site scattered by a point more: its sums raise an alarm, those of the others none."""
    rng = np.random.default_rng(0)
    frame = pl.read_parquet(place / "site1.parquet")
    moved = frame.with_columns(hba1c=pl.col("hba1c") + pl.Series(1.5 * rng.standard_normal(len(frame))).clip(-1.9, 1.9))
    moved.with_columns(pl.col("hba1c").clip(lower_bound=4.0)).write_parquet(tmp_path / "moved.parquet")
    files = [tmp_path / f"{k}.json" for k in range(SITES)]
    for k, path in enumerate(files):
        visits = tmp_path / "moved.parquet" if k == 1 else place / f"site{k}.parquet"
        write_sums(place / "model", visits, path, site=f"site {k}")
    found = join_files(place / "model", files, tmp_path / "joined")
    assert [bool(each.alarm) for each in found.sites if each.site == "site 1"] == [True]
    assert found.q_chance is not None
    assert found.q_chance < 0.05


@pytest.mark.full
@pytest.mark.parametrize(
    ("claim", "told"),
    [("later", {}), ("unmeasured", {"groups": ("value",)}), ("unmeasured", {"promise": "confident", "tolerance": 1.2})],
)
def test_eight_hospitals_equal_the_pooled_table_to_the_byte(tmp_path: Path, claim: str, told: dict[str, Any]) -> None:
    """Of different sizes, measuring and error rates."""
    whole, rng = cohort_of(1500), np.random.default_rng(8)
    hospital = np.digitize(rng.random(10_000), [0.05, 0.1, 0.17, 0.25, 0.36, 0.5, 0.7])
    site = hospital[whole["subject_id"].to_numpy()]
    scatter, missed = 0.04 * site * rng.standard_normal(len(whole)), rng.random(len(whole)) < 0.05 * site
    whole = whole.with_columns(hba1c=pl.col("hba1c") + pl.Series(scatter))
    whole = whole.with_columns(pl.when(pl.Series(~missed)).then(pl.col("hba1c")).alias("hba1c"))
    fit_visits(whole.filter(pl.Series(site >= 6)), claim, **{"tolerance": 1.0, **told}).save(tmp_path / "model")
    whole.write_parquet(tmp_path / "whole.parquet")
    calibrate_files(tmp_path / "model", tmp_path / "whole.parquet", tmp_path / "pooled")
    for k in range(8):
        whole.filter(pl.Series(site == k)).write_parquet(tmp_path / f"{k}.parquet")
    files = [tmp_path / f"{k}.json" for k in range(8)]
    for k, path in enumerate(files):
        write_sums(tmp_path / "model", tmp_path / f"{k}.parquet", path, site=f"hospital {k}", least=1)
    joined = join_files(tmp_path / "model", files, tmp_path / "joined")
    one, other = (verified_manifest(tmp_path / each) for each in ("joined/model", "pooled"))
    assert {name: one[name] for name in KEPT} == {name: other[name] for name in KEPT}  # type: ignore[literal-required]
    assert any(each.risk is not None for each in joined.cutoffs.values())
    assert len(joined.sites) == 8
