"""Folding is the same as applying one by one, however changes are cut into batches, ranges and orders."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.defining.folding import Batch, Folded, fold
from projections.defining.tables import Change, ColumnOperation, Table, TableConflict

OWNED = Table(
    "owned", key="k", set=("s1", "s2"), increment=("n", "d"), minimum="lo", maximum="hi", per_source=True
)
SHARED = Table("shared", key=("a", "b"), increment=("n", "d"), minimum="lo", maximum="hi")

small = st.none() | st.integers(-5, 5)
decimals = st.none() | st.decimals(-100, 100, places=3) | st.floats(-10, 10) | st.integers(-5, 5)
numbers = {"n": small, "d": decimals, "lo": small, "hi": small}


def some(columns: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=columns)


# The source of a key of OWNED is the key itself, so that keys never have two.
owned_changes = st.integers(0, 3).flatmap(
    lambda k: st.one_of(
        st.just(OWNED.delete(k=k)),
        some({"s1": small, "s2": st.sampled_from([None, "", "a", "ä"]), **numbers}).map(
            lambda values: OWNED.upsert(k=k, **values)
        ),
    ).map(lambda change: (f"source-{k}", change))
)
shared_changes = st.tuples(
    st.sampled_from(["x", "y", "z"]),
    st.tuples(st.integers(0, 1), st.sampled_from("pq"), some(numbers)).map(
        lambda t: SHARED.upsert(a=t[0], b=t[1], **t[2])
    ),
)

EXACT = Context(prec=1000)

Model = dict[tuple[Any, ...], dict[str, Any]]
Sourced = list[tuple[str, Change]]


def apply_one(model: Model, change: Change) -> None:
    """What a change means, in the plainest words."""
    if change.values is None:
        model.pop(change.key, None)
        return
    row = model.setdefault(change.key, dict.fromkeys(change.table.operations))
    for column, value in change.values.items():
        row[column] = _combined(change.table.operations[column], row[column], value)


def _combined(operation: ColumnOperation, old: Any, new: Any) -> Any:
    if operation is ColumnOperation.SET:
        return new
    if new is None:
        return old
    if isinstance(new, float):
        new = Decimal(repr(new))
    if old is None:
        return new
    if operation is ColumnOperation.INCREMENT:
        return EXACT.add(old, new)
    return min(old, new) if operation is ColumnOperation.MINIMUM else max(old, new)


def apply_folded(model: Model, table: Table, key: tuple[Any, ...], row: Folded) -> None:
    if row.delete:
        model.pop(key, None)
    if row.values is not None:
        apply_one(model, Change(table, key, row.values))


def apply_batch(model: Model, batch: Batch) -> None:
    for table, rows in batch.tables.items():
        for key, row in rows.items():
            apply_folded(model, table, key, row)


def one_by_one(changes: Sourced) -> Model:
    model: Model = {}
    for _, change in changes:
        apply_one(model, change)
    return model


def split(changes: list[Any], cuts: list[int]) -> list[list[Any]]:
    edges = [0, *sorted(min(cut, len(changes)) for cut in cuts), len(changes)]
    return [changes[start:end] for start, end in pairwise(edges)]


cut_places = st.lists(st.integers(0, 40), max_size=6)


@given(st.lists(owned_changes, max_size=40), cut_places)
def test_any_cut_into_batches_equals_one_by_one(changes: Sourced, cuts: list[int]) -> None:
    model: Model = {}

    for part in split(changes, cuts):
        apply_batch(model, fold(part))

    assert model == one_by_one(changes)


@given(
    st.lists(shared_changes, max_size=40), st.lists(st.integers(0, 2), min_size=40, max_size=40), st.randoms()
)
def test_any_interleaving_over_any_ranges_gives_the_same_shared_table(
    changes: Sourced, ranges: list[int], rng: random.Random
) -> None:
    model: Model = {}

    # Each range holds a batch and writes it whenever it likes; the sources of one range come in any order.
    waiting = [(ranges[place], source_id, change) for place, (source_id, change) in enumerate(changes)]
    _interleave(waiting, rng)
    batches = [Batch() for _ in range(3)]
    for number, source_id, change in waiting:
        batches[number].add(source_id, change)
        if rng.random() < 0.3:
            apply_batch(model, batches[number])
            batches[number] = Batch()
    for batch in rng.sample(batches, 3):
        apply_batch(model, batch)

    assert model == one_by_one(changes)


def _interleave(waiting: list[Any], rng: random.Random) -> None:
    """Any order: a stricter demand than keeping the order of each source."""
    rng.shuffle(waiting)


@given(st.lists(owned_changes, max_size=20), st.lists(owned_changes, max_size=5))
def test_an_event_enters_a_batch_all_or_not_at_all(before: Sourced, event: Sourced) -> None:
    batch = fold(before)
    expected = {key: row for rows in batch.tables.values() for key, row in rows.items()}
    changes = [change for _, change in event]

    with pytest.raises((ValueError, TableConflict)):
        batch.collect("source-0", [*changes, OWNED.upsert(k=9, n="not a number")])

    assert {key: row for rows in batch.tables.values() for key, row in rows.items()} == expected


# The last hour of summer of Berlin comes twice, from 00:00 to 02:00 in UTC.
BERLIN = ZoneInfo("Europe/Berlin")
SUMMER_ENDS = datetime(2026, 10, 24, 23, tzinfo=UTC)
TIMES = Table("times", key="at", increment="n", minimum="lo", maximum="hi")
instants = st.integers(0, 240).map(lambda minutes: SUMMER_ENDS + timedelta(minutes=minutes))


@given(st.lists(st.tuples(instants, st.sampled_from([UTC, BERLIN])), max_size=12), cut_places)
def test_a_time_is_an_instant_in_whichever_zone_it_is_told(times: list[Any], cuts: list[int]) -> None:
    hours = [at.replace(minute=0) for at, _ in times]
    changes = [
        ("s", TIMES.upsert(at=hour.astimezone(zone), n=1, lo=at.astimezone(zone), hi=at.astimezone(zone)))
        for hour, (at, zone) in zip(hours, times, strict=True)
    ]
    model: Model = {}

    for part in split(changes, cuts):
        apply_batch(model, fold(part))

    assert model == {
        (hour,): {"n": len(of_hour), "lo": min(of_hour), "hi": max(of_hour)}
        for hour in hours
        if (of_hour := [at for (at, _), begins in zip(times, hours, strict=True) if begins == hour])
    }
