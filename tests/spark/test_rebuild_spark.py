"""Rebuilds whose tasks run on Spark: the same tables, each effect once, and nothing left of cancelled ones."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import ALL_TYPES, ConnectionSettings, Database, EntityTypes, Event, append, connect
from projections import projection
from spark_projections.errors import RebuildFailed
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.examples import examples
from tests.fixtures.projections import Happened
from tests.fixtures.rebuilds import (
    EXACT,
    AllKinds,
    Changed,
    Counts,
    Effects,
    Kept,
    append_changes,
    differing,
    fence_passes,
    forget_all,
    held,
    make_read_models,
    plain_fold,
    processes_held_up,
    schemas,
    source_in,
    state_of,
    tables_of_all_kinds,
    until_held_up,
    write,
)
from tests.property.test_rebuild_model import changes, sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    with databases.fresh(template) as fresh:
        yield fresh


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=10)) as pool:
        await make_read_models(pool)
        yield pool


async def rebuilt(dsn: str, events: list[tuple[str, Changed]], splits: int, spark: Any) -> dict[str, Any]:
    async with connect(dsn) as database:
        await make_read_models(database)
        await forget_all(database)
        await append_changes(database, events)
        await fence_passes(database)
        await rebuild(database, dsn, AllKinds, RebuildOptions(splits=splits), spark=spark)
        return await tables_of_all_kinds(database)


@pytest.mark.slow
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(st.tuples(sources, changes), min_size=5, max_size=40),
    splits=st.sampled_from([1, 4, 32]),
)
def test_tables_that_spark_builds_are_what_a_plain_loop_makes(
    spark: SparkSession, module_dsn: str, events: list[tuple[str, Changed]], splits: int
) -> None:
    found = asyncio.run(rebuilt(module_dsn, events, splits, spark.sparkContext))

    assert found == plain_fold(events)


@pytest.mark.slow
async def test_a_task_that_is_killed_is_repeated_and_its_effects_are_there_once(
    spark: SparkSession, journal: Database, dsn: str
) -> None:
    low, high = source_in(0, 300), source_in(700, 1023)
    await write(journal, *[(low, 0)] * 12, (low, 1), *[(low, 0)] * 7, *[(high, 0)] * 20)
    async with held(journal) as let_go:
        options = RebuildOptions(splits=2)
        task = asyncio.create_task(rebuild(journal, dsn, Effects, options, spark=spark.sparkContext))
        await until_held_up(journal)
        (pid,) = await processes_held_up(journal)
        os.kill(pid, signal.SIGKILL)
        await until_held_up(journal, 2)
        await let_go()
        result = await task

    assert result.events == 40
    assert await differing(journal) == EXACT


@pytest.mark.slow
@pytest.mark.parametrize("types", [("plane", "airport"), ALL_TYPES], ids=["two", "all"])
async def test_several_types_are_rebuilt_on_spark(
    journal: Database, dsn: str, spark: SparkSession, types: Any
) -> None:
    kinds = ("plane", "airport", "ship")
    async with journal.transaction() as session:
        await append(session, [Event(f"s{n % 9}", Happened(), kinds[n % 3]) for n in range(90)])
    await fence_passes(journal)
    definition = projection("counts", entity_type=types)(type("Several", (Counts,), {}))

    await rebuild(journal, dsn, definition, RebuildOptions(splits=3), spark=spark.sparkContext)

    async with journal.session() as session:
        found = {row["source_id"]: row["n"] for row in await session.fetch("SELECT source_id, n FROM counts")}
    assert found == {f"s{n}": 10 for n in range(9) if kinds[n % 3] in EntityTypes.of(types)}


@pytest.mark.slow
async def test_a_cancelled_rebuild_on_spark_leaves_nothing(
    spark: SparkSession, journal: Database, dsn: str
) -> None:
    await write(journal, *[("a", 0)] * 12, ("a", 1))
    async with held(journal) as let_go:
        options = RebuildOptions(splits=2)
        task = asyncio.create_task(rebuild(journal, dsn, Effects, options, spark=spark.sparkContext))
        await until_held_up(journal)
        task.cancel()
        await let_go()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert await schemas(journal) == []
    assert await state_of(journal) == "cancelled"
    assert spark.range(10).count() == 10


@pytest.mark.slow
async def test_an_event_that_can_not_be_handled_is_named_and_then_skipped(
    spark: SparkSession, journal: Database, dsn: str
) -> None:
    await write(journal, ("a", 0))
    async with journal.transaction() as session:
        await append(session, [Event("b", {"n": "many"}, "plane", event_type="Happened")])
    await fence_passes(journal)
    context, kept = spark.sparkContext, Kept()
    with pytest.raises(RebuildFailed, match=r"(?s)Happened.*\bb\b.*\bn\b"):
        await rebuild(journal, dsn, Counts, RebuildOptions(splits=4), spark=context)

    result = await rebuild(
        journal, dsn, Counts, RebuildOptions(splits=4, skip=True), spark=context, progress=kept
    )

    assert (result.resumed, result.events, result.skipped) == (True, 2, 1)
    assert kept.stages == ["fold", "combine", "verify", "swap"]
