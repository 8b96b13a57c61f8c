import polars as pl
import pytest

from safeimpute.errors import OptionError, VisitsError
from safeimpute.settings import Settings, make_settings
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.lab_settings import labs_asked, settings_of_labs, settings_of_one
from safeimpute.visits.visits import prepare_targets, prepare_visits


def asked(target: object, tolerance: object = "10%", **more: object) -> Settings:
    return make_settings(target=target, tolerance=tolerance, fdr=0.1, **more)


TABLE = pl.DataFrame(
    {
        "subject_id": [1, 1, 2, 2],
        "time": [0.0, 1.0, 0.0, 1.0],
        "sex": ["f", "f", "m", "m"],
        "ldl": [1.0, 2.0, None, 3.0],
        "hba1c": [5.0, None, 6.5, 7.0],
        "empty": pl.Series([None] * 4, dtype=pl.Float64),
        "a,b": [3.0, None, 4.0, 7.0],
    }
)


def test_labs_are_named_in_a_text_a_tuple_or_all() -> None:
    assert labs_asked(asked("ldl, hba1c"), TABLE) == ("ldl", "hba1c")
    assert labs_asked(asked(("ldl", "hba1c")), TABLE) == ("ldl", "hba1c")
    assert labs_asked(asked(("ldl",)), TABLE) == ("ldl",)
    assert labs_asked(asked("all"), TABLE) == ("a,b", "hba1c", "ldl")
    assert labs_asked(asked("a,b"), TABLE) == ("a,b",), "a column of that very name is one lab"


def test_a_lab_named_twice_or_that_cannot_be_listed_is_an_error() -> None:
    with pytest.raises(OptionError, match="'ldl' twice"):
        labs_asked(asked("ldl,ldl"), TABLE)
    with pytest.raises(OptionError, match="comma"):
        asked(("a,b", "ldl"))
    with pytest.raises(OptionError, match="target"):
        asked(())


def test_every_lab_has_its_own_tolerance_unit_and_a_light_fit() -> None:
    settings = asked("hba1c,ldl", {"hba1c": 0.5, "ldl": "10% or 6"}, unit="ldl=mg/dL")
    each = settings_of_labs(settings, ("hba1c", "ldl"))
    assert (each["hba1c"].tolerance, each["ldl"].tolerance) == (0.5, "10% or 6")
    assert (each["hba1c"].unit, each["ldl"].unit) == (None, "mg/dL")
    assert each["ldl"].target == "ldl"
    assert each["ldl"].labs == ("hba1c", "ldl")
    assert (each["ldl"].best.folds, each["ldl"].best.pace) == (4, 1.5)
    assert "4 folds" in each["ldl"].best.effort_in_words
    alone = settings_of_one(asked("hba1c"))
    assert (alone.best.folds, alone.best.pace, alone.best.effort_in_words) == (5, 1.0, "")


def test_full_effort_and_fewer_folds_are_kept() -> None:
    full = settings_of_labs(asked("hba1c,ldl", best={"effort": "full"}), ("hba1c", "ldl"))
    assert (full["ldl"].best.folds, full["ldl"].best.pace) == (5, 1.0)
    few = settings_of_labs(asked("hba1c,ldl", best={"folds": 3}), ("hba1c", "ldl"))
    assert few["ldl"].best.folds == 3


def test_one_share_may_stand_for_the_labs_not_named() -> None:
    each = settings_of_labs(asked("hba1c,ldl", "20%,hba1c=0.5"), ("hba1c", "ldl"))
    assert [one.tolerance for one in each.values()] == [0.5, "20%"]


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        ("hba1c=0.5", "none is given for 'ldl'"),
        (0.5, "in no lab's unit"),
        ("0.5,ldl=10%", "in no lab's unit"),
        ("hba1c=0.5,ldl=10%,hdl=3", "names 'hdl'"),
        ("hba1c=0.5,hba1c=1,ldl=2", "twice"),
        ("hba1c=0.5,ldl=lots", "lots"),
        ("20%,10%,ldl=3", "twice"),
        ("allowable", "no allowable error for 'made_up'"),
    ],
)
def test_a_tolerance_that_does_not_fit_the_labs_is_an_error(tolerance: object, said: str) -> None:
    labs = ("hba1c", "made_up") if tolerance == "allowable" else ("hba1c", "ldl")
    with pytest.raises(OptionError, match=said):
        settings_of_labs(asked(",".join(labs), tolerance), labs)


def test_allowable_errors_come_from_the_catalogue() -> None:
    labs = ("creatinine", "hba1c", "sodium")
    each = settings_of_labs(asked(",".join(labs), "allowable"), labs)
    assert [one.tolerance for one in each.values()] == ["15% or 0.3", "8%", 4.0]
    mixed = settings_of_labs(asked("hba1c,made_up", "allowable,made_up=3"), ("hba1c", "made_up"))
    assert [one.tolerance for one in mixed.values()] == ["8%", 3.0]
    assert settings_of_one(asked("sodium", "allowable")).tolerance == 4.0
    with pytest.raises(OptionError, match=r"mmol/L, not in mg/dL"):
        settings_of_labs(asked(",".join(labs), "allowable", unit="sodium=mg/dL"), labs)


def test_a_unit_must_say_of_which_lab() -> None:
    with pytest.raises(OptionError, match="of which lab"):
        settings_of_labs(asked("hba1c,ldl", unit="mg/dL"), ("hba1c", "ldl"))
    with pytest.raises(OptionError, match="names 'hdl'"):
        settings_of_labs(asked("hba1c,ldl", unit="hdl=mg/dL"), ("hba1c", "ldl"))


def test_prepared_visits_are_those_of_each_lab_alone() -> None:
    choice = ColumnChoice("", exclude=("empty", "a,b"))
    together = prepare_targets(TABLE, choice, ("ldl", "hba1c"))
    for lab, visits in together.items():
        alone = prepare_visits(TABLE, ColumnChoice(lab, labs=("ldl", "hba1c"), exclude=("empty", "a,b")))
        assert visits.fingerprint == alone.fingerprint
        assert visits.roles[lab].role == "target"
        assert visits.roles == alone.roles
    assert together["ldl"].arrays.labs is together["hba1c"].arrays.labs


def test_a_lab_never_measured_is_named() -> None:
    with pytest.raises(VisitsError, match="'empty' is never measured"):
        prepare_targets(TABLE, ColumnChoice(""), ("ldl", "empty"))
    with pytest.raises(VisitsError, match="'nowhere'"):
        prepare_targets(TABLE, ColumnChoice(""), ("ldl", "nowhere"))


def test_labs_that_copy_each_other_are_named() -> None:
    many = pl.DataFrame(
        {"subject_id": [k // 3 for k in range(90)], "time": [float(k % 3) for k in range(90)]}
    ).with_columns(first=pl.int_range(90) % 17 + 0.5)
    many = many.with_columns(second=pl.col("first") * 2 + 1)
    with pytest.raises(VisitsError, match=r"'first' and 'second' nearly copy each other.*--exclude second"):
        prepare_targets(many, ColumnChoice(""), ("first", "second"))
