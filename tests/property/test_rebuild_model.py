"""Workers, a batch of any number of parts, and a plain loop make the same tables of any journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from journal import ConnectionSettings, Database, Event, append, connect
from journal.importing import import_events
from projections.testing import run_until_caught_up
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.examples import examples
from tests.fixtures.projections import until
from tests.fixtures.rebuilds import (
    AllKinds,
    Changed,
    append_changes,
    fence_passes,
    forget_all,
    forget_read_models,
    in_this_process,
    make_read_models,
    plain_fold,
    tables_of_all_kinds,
    tied,
)

__all__ = ["in_this_process"]

_HANDLED = "SELECT coalesce(sum(seq_nr), 0) >= $1 FROM projections.source_offsets"

# Sorted otherwise in most languages than by code point.
NAMES = ["", "a", "B", "ä", "Z", "_", "\uffff", "😀", "e\u0301", "é", " ", "'", "\\", "NULL"]

keys = st.sampled_from(["", "k", "ключ", "😀"])
names = st.none() | st.sampled_from(NAMES) | st.text(st.characters(exclude_categories=["Cs", "Cc"]))
changes = st.builds(
    Changed,
    key=keys,
    n=st.none() | st.integers(-(2**31), 2**31 - 1),
    amount=st.none() | st.decimals(Decimal(-(10**9)), Decimal(10**9), places=3),
    name=names,
    day=st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)),
    delete=st.sampled_from([False, False, False, True]),
)
# One of them has half of all events.
sources = st.sampled_from(["hot", "hot", "hot", "hot", "a", "b", "ünïcode", "😀"])
late_sources = st.sampled_from(["late", "later"])


class Journal(NamedTuple):
    imported: list[tuple[str, Changed]]
    """The n-th events of all sources have one time."""
    appended: list[tuple[str, Changed]]
    late: list[tuple[str, Changed]]
    """Are committed after the others, and have older times."""

    @property
    def events(self) -> list[tuple[str, Changed]]:
        return [*self.imported, *self.appended, *self.late]


journals = st.builds(
    Journal,
    st.lists(st.tuples(sources, changes), max_size=20),
    st.lists(st.tuples(sources, changes), max_size=20),
    st.lists(st.tuples(late_sources, changes), max_size=5),
)


# Of the parts of a row, one has the least of all, one the greatest, and one nothing.
IN_PARTS = Journal([], [("a", Changed(n=1, name="B")), ("b", Changed(n=3, name="ä")), ("hot", Changed())], [])


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    """One database for all examples: making one takes longer than an example."""
    with databases.fresh(template) as fresh:
        yield fresh


async def write_and_follow(database: Database, journal: Journal, ranges: int) -> dict[str, Any]:
    """Write the journal while workers of so many ranges follow; returns their tables."""
    await import_events(database, tied(journal.imported))
    async with database.session() as late:
        await late.begin()
        if journal.late:
            await append(late, [Event(source_id, change, "plane") for source_id, change in journal.late])
        await append_changes(database, journal.appended)
        running = asyncio.create_task(run_until_caught_up(database, AllKinds, ranges=ranges))
        await until(database, _HANDLED, len(journal.imported) + len(journal.appended))
        await late.commit()
    await running
    return await tables_of_all_kinds(database)


async def rebuilt(database: Database, dsn: str, splits: int) -> dict[str, Any]:
    await fence_passes(database)
    await rebuild(database, dsn, AllKinds, RebuildOptions(splits=splits))
    return await tables_of_all_kinds(database)


async def live_and_rebuilt(dsn: str, journal: Journal, ranges: int, splits: int) -> list[dict[str, Any]]:
    async with connect(dsn, ConnectionSettings(max_connections=15)) as database:
        await make_read_models(database)
        await forget_all(database)
        live = await write_and_follow(database, journal, ranges)
        await forget_read_models(database)
        from_nothing = await rebuilt(database, dsn, splits)
        return [live, from_nothing]


@settings(max_examples=examples(12, daily=2), suppress_health_check=list(HealthCheck))
@given(journal=journals, ranges=st.sampled_from([1, 3, 8]), splits=st.sampled_from([1, 4, 32]))
@example(journal=IN_PARTS, ranges=1, splits=4)
@pytest.mark.usefixtures("in_this_process")
def test_live_and_rebuilt_tables_are_what_a_plain_loop_makes(
    module_dsn: str, journal: Journal, ranges: int, splits: int
) -> None:
    found = asyncio.run(live_and_rebuilt(module_dsn, journal, ranges, splits))

    assert found == [plain_fold(journal.events)] * 2


@pytest.mark.slow
async def test_parts_that_processes_fold_at_once_make_the_same(database: Database, dsn: str) -> None:
    await make_read_models(database)
    events = [
        (f"s{number % 20}", Changed(key=NAMES[number % 5], n=number, name=NAMES[number % 14]))
        for number in range(400)
    ]
    await append_changes(database, events)

    assert await rebuilt(database, dsn, 4) == plain_fold(events)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("splits", [1, 32])
async def test_an_empty_journal_gives_empty_tables(database: Database, dsn: str, splits: int) -> None:
    await make_read_models(database)
    await database_row(database)

    assert await rebuilt(database, dsn, splits) == {"totals": {}, "own": {}}


async def database_row(database: Database) -> None:
    async with database.session() as session:
        await session.execute("INSERT INTO totals (key) VALUES ('of an older journal')")
