"""Declaring tables, making changes, and folding them: no database."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from projections.defining.folding import Batch, fold
from projections.defining.tables import Change, ColumnOperation, Table, TableConflict

DELAYS = Table(
    "carrier_delays",
    key=("carrier", "day"),
    increment=("flights", "delay_minutes"),
    maximum=("worst",),
    minimum=("best",),
)
STATUS = Table("plane_status", key=("tail",), set=("status", "airport"), per_source=True)
DAY = date(2013, 1, 1)


def folded(*changes: Change, source_id: str = "s") -> dict[Any, tuple[bool, Any]]:
    batch = fold((source_id, change) for change in changes)
    return {key: (row.delete, row.values) for rows in batch.tables.values() for key, row in rows.items()}


# Declaring


def test_every_column_has_the_operation_it_was_declared_with() -> None:
    assert DELAYS.operations == {
        "flights": ColumnOperation.INCREMENT,
        "delay_minutes": ColumnOperation.INCREMENT,
        "best": ColumnOperation.MINIMUM,
        "worst": ColumnOperation.MAXIMUM,
    }


@pytest.mark.parametrize(
    ("name", "qualified"),
    [("t", ("t",)), ("s.t", ("s", "t")), (("s", "t.x"), ("s", "t.x")), (("t",), ("t",))],
)
def test_a_name_may_be_qualified(name: Any, qualified: tuple[str, ...]) -> None:
    assert Table(name, key=("k",)).qualified_name == qualified


def test_a_single_column_may_be_named_without_a_tuple() -> None:
    assert Table("t", key="tail", increment="n").key == ("tail",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": ("k",), "increment": ("k",)}, "column 'k' is in key and in increment; name it in one place"),
        ({"key": ("k",), "minimum": ("c",), "maximum": ("c",)}, "column 'c' is in minimum and in maximum"),
        ({"key": ("k", "k")}, "column 'k' is in key and in key"),
        ({"key": ()}, "key is empty; name the columns that identify a row"),
        ({"key": ("",)}, "column '' is not a name"),
        ({"key": ("a\0b",)}, "holds the character NUL"),
        ({"key": ("\ud800",)}, "holds half of a surrogate pair"),
        ({"key": ("é" * 32,)}, "has 64 bytes; PostgreSQL keeps 63: shorten it"),
        ({"key": (7,)}, "column 7 is not a name"),
        ({"key": ("k",), "set": ("c",)}, r"set=\('c',\) keeps what is written last.*declare per_source=True"),
    ],
)
def test_a_contradicting_declaration_is_refused_with_the_value_and_the_way_out(
    columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Table("t", **columns)


@pytest.mark.parametrize(("name"), ["", "a.b.c", "a.", ("a", "b", "c"), "x" * 64, "a\0"])
def test_a_name_that_postgresql_has_not_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="table"):
        Table(name, key=("k",))


# Changes


def test_a_change_holds_the_key_in_its_declared_order_and_the_other_columns() -> None:
    change = DELAYS.upsert(flights=1, day=DAY, carrier="UA")

    assert change == (DELAYS, ("UA", DAY), {"flights": 1})
    assert (change.table, change.key, change.values) == change


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(
        ValueError, match="table carrier_delays: unknown column 'fligths'; declared are carrier, day"
    ):
        DELAYS.upsert(carrier="UA", day=DAY, fligths=1)


def test_a_missing_key_column_is_refused() -> None:
    with pytest.raises(ValueError, match="table carrier_delays: key column 'day' is missing"):
        DELAYS.upsert(carrier="UA", flights=1)


@pytest.mark.parametrize("change", [STATUS.upsert, STATUS.delete])
def test_a_key_of_none_is_refused(change: Any) -> None:
    with pytest.raises(ValueError, match="table plane_status: key column 'tail' is None"):
        change(tail=None)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (time(1, tzinfo=UTC), "has a time zone and no date"),
        (Decimal("NaN"), "NaN has no place in an order"),
        (Decimal("sNaN"), "NaN"),
        (float("nan"), "NaN has no place in an order"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "is not in the years 1 to 9999 of UTC"),
    ],
)
def test_a_value_without_a_place_in_an_order_is_no_key_and_no_extreme(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STATUS.upsert(tail=value)
    with pytest.raises(ValueError, match=f"table carrier_delays: maximum of 'worst': .*{message}"):
        folded(DELAYS.upsert(carrier="UA", day=DAY, worst=value))


def test_a_row_is_deleted_by_the_same_instant_in_another_zone() -> None:
    at = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)

    assert STATUS.delete(tail=at.astimezone(ZoneInfo("Europe/Berlin"))) == STATUS.delete(tail=at)


def test_delete_is_refused_where_sources_share_keys() -> None:
    with pytest.raises(ValueError, match="declare per_source=True"):
        DELAYS.delete(carrier="UA", day=DAY)


def test_delete_takes_the_key_only() -> None:
    with pytest.raises(ValueError, match=r"delete takes the key \('tail',\) only, not \['status'\]"):
        STATUS.delete(tail="N1", status="landed")


def test_columns_may_have_the_names_of_arguments() -> None:
    table = Table("t", key=("self", "key"), increment=("name",))

    assert table.upsert(self=1, key=2, name=3).key == (1, 2)


# Folding


def test_increments_add_and_extremes_compare() -> None:
    changes = [
        DELAYS.upsert(carrier="UA", day=DAY, flights=1, delay_minutes=d, worst=d, best=d) for d in (5, -3, 9)
    ]

    assert folded(*changes) == {
        ("UA", DAY): (False, {"flights": 3, "delay_minutes": 11, "worst": 9, "best": -3})
    }


def test_none_changes_no_increment_and_no_extreme() -> None:
    change = DELAYS.upsert(carrier="UA", day=DAY, flights=None, worst=None, best=None)

    assert folded(change) == {("UA", DAY): (False, {})}


def test_set_takes_the_last_value_also_none() -> None:
    changes = [
        STATUS.upsert(tail="N1", status="landed", airport="JFK"),
        STATUS.upsert(tail="N1", status=None),
    ]

    assert folded(*changes) == {("N1",): (False, {"status": None, "airport": "JFK"})}


def test_upsert_then_delete_leaves_no_row() -> None:
    assert folded(STATUS.upsert(tail="N1", status="x"), STATUS.delete(tail="N1")) == {("N1",): (True, None)}


def test_delete_then_upsert_makes_a_fresh_row() -> None:
    changes = [
        STATUS.upsert(tail="N1", airport="JFK"),
        STATUS.delete(tail="N1"),
        STATUS.upsert(tail="N1", status="x"),
    ]

    assert folded(*changes) == {("N1",): (True, {"status": "x"})}


def test_floats_add_as_the_decimals_that_they_print_as() -> None:
    table = Table("t", key="k", increment="n")

    assert folded(*[table.upsert(k=1, n=0.1)] * 3) == {(1,): (False, {"n": Decimal("0.3")})}


def test_sums_do_not_round_however_long() -> None:
    table = Table("t", key="k", increment="n")
    changes = [table.upsert(k=1, n=n) for n in (Decimal("1e40"), Decimal("1e-40"), Decimal("-1e40"), 0)]

    assert folded(*changes)[(1,)][1] == {"n": Decimal("1e-40")}


def test_true_counts_as_one() -> None:
    table = Table("t", key="k", increment="n")

    assert folded(table.upsert(k=1, n=True), table.upsert(k=1, n=True)) == {(1,): (False, {"n": 2})}


@pytest.mark.parametrize("value", ["1", float("nan"), Decimal("inf"), [1], 1j])
def test_what_can_not_be_added_is_refused(value: Any) -> None:
    table = Table("t", key="k", increment="n")

    with pytest.raises(ValueError, match="table t: increment of 'n'"):
        fold([("s", table.upsert(k=1, n=value))])


@pytest.mark.parametrize("value", [float("nan"), Decimal("nan"), "text", {}])
def test_what_can_not_be_ordered_is_refused(value: Any) -> None:
    table = Table("t", key="k", minimum="n")

    with pytest.raises(ValueError, match="table t: minimum of 'n'"):
        fold([("s", table.upsert(k=1, n=1)), ("s", table.upsert(k=1, n=value))])


def test_a_key_that_can_not_be_hashed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table plane_status: .* cannot be a key"):
        fold([("s", STATUS.upsert(tail=["N1"]))])


def test_two_sources_on_one_key_of_a_per_source_table_are_a_conflict() -> None:
    with pytest.raises(TableConflict, match=r"plane_status .* key \('N1',\) .* source 'a' and by source 'b'"):
        fold([("a", STATUS.upsert(tail="N1")), ("b", STATUS.delete(tail="N1"))])


def test_a_row_whose_key_names_another_source_is_a_conflict() -> None:
    table = Table("t", key=("source_id", "n"), increment="times", source="source_id")

    with pytest.raises(
        TableConflict, match=r"declared source='source_id', but source 'a' touched key \('b', 1\)"
    ):
        fold([("a", table.upsert(source_id="b", n=1, times=1))])


def test_a_change_may_be_used_again() -> None:
    change = DELAYS.upsert(carrier="UA", day=DAY, flights=1)

    assert folded(change, change) == {("UA", DAY): (False, {"flights": 2})}
    assert change.values == {"flights": 1}


# Collecting what a handler returned


@pytest.mark.parametrize(
    "returned",
    [
        STATUS.upsert(tail="N1", status="x"),
        [STATUS.upsert(tail="N1", status="x")],
        (change for change in [STATUS.upsert(tail="N1"), STATUS.upsert(tail="N1", status="x")]),
    ],
)
def test_one_change_or_several_may_be_returned(returned: Any) -> None:
    batch = Batch()

    batch.collect("s", returned)

    assert batch.tables[STATUS]["N1",].values == {"status": "x"}


def test_none_changes_nothing() -> None:
    batch = Batch()

    batch.collect("s", None)

    assert len(batch) == 0


@pytest.mark.parametrize("returned", [{"tail": "N1"}, "N1", 7, [("N1", "x")], [None]])
def test_anything_else_is_refused(returned: Any) -> None:
    with pytest.raises(TypeError, match=r"a table handler returned .* return TABLE.upsert"):
        Batch().collect("s", returned)


def test_an_event_that_fails_leaves_nothing_of_itself() -> None:
    batch = Batch()
    batch.collect("s", DELAYS.upsert(carrier="UA", day=DAY, flights=1))
    bad = [
        DELAYS.upsert(carrier="UA", day=DAY, flights=1),
        DELAYS.upsert(carrier="AA", day=DAY, flights=1),
        DELAYS.upsert(carrier="UA", day=DAY, flights="one"),
    ]

    with pytest.raises(ValueError, match="flights"):
        batch.collect("s", bad)

    assert {key: row.values for key, row in batch.tables[DELAYS].items()} == {("UA", DAY): {"flights": 1}}
