"""Closed partitions in slice order: what is done, what is left alone, and what the command says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from journal import Database, DatabaseError, MissingPrivilege, append, connect
from journal.partitions import cluster
from projections.cli import main
from tests.fixtures.clustering import (
    DAY,
    EVENTS,
    NAME,
    TABLE,
    closed_partition,
    cluster_once,
    clustered_names,
    value,
)
from tests.fixtures.journal import PAST, count, event


@pytest.fixture
async def journal(database: Database) -> Database:
    """300 events of 30 sources of two types on a day of 2020, in a partition of its own."""
    return await closed_partition(database)


async def test_closed_partition_is_put_in_the_order_of_type_slice_source_and_number(
    journal: Database,
) -> None:
    before = await value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e")

    partition = await cluster_once(journal)

    keys = "(entity_type, slice, source_id, seq_nr)"
    assert (partition.name, partition.events, partition.problem) == (NAME, EVENTS, None)
    assert partition.bytes_after == await value(
        journal, "SELECT bytes FROM projections.partitions WHERE name = $1", NAME
    )
    assert await value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e") == before
    assert await value(
        journal,
        f"SELECT array_agg({keys}::text ORDER BY ctid) = array_agg({keys}::text ORDER BY {keys[1:-1]}) FROM {TABLE}",
    )
    assert await count(journal) == EVENTS


async def test_partition_in_slice_order_is_not_done_again(journal: Database) -> None:
    await cluster_once(journal)

    assert await cluster(journal) == []
    assert await clustered_names(journal) == [NAME]


async def test_partition_that_ended_too_recently_or_runs_or_is_empty_is_left_alone(journal: Database) -> None:
    async with journal.transaction() as session:
        await append(session, [event()])
        await session.fetchval("SELECT projections._create_partition_v1($1, $2)", PAST - DAY, PAST)

    assert await cluster(journal, closed_for=36500 * DAY) == []
    assert [p.name for p in await cluster(journal)] == [NAME]


async def test_open_partition_is_refused_by_the_database(journal: Database) -> None:
    running = await value(
        journal, "SELECT name FROM projections.partitions WHERE to_timestamp > clock_timestamp() LIMIT 1"
    )

    with pytest.raises(DatabaseError, match=f"partition {running} is not closed"):
        await value(journal, "SELECT projections._cluster_partition_v1($1)", running)
    with pytest.raises(DatabaseError, match="'nothing' is not a time partition"):
        await value(journal, "SELECT projections._cluster_partition_v1('nothing')")


SHAPE = """
SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY indexrelid::regclass::text), c.relowner, c.relacl,
    c.reloptions, obj_description(c.oid), pg_get_expr(c.relpartbound, c.oid),
    (SELECT array_agg(conname || pg_get_constraintdef(oid) ORDER BY conname) FROM pg_constraint
     WHERE conrelid = c.oid AND contype <> 'n')
FROM pg_index AS i INNER JOIN pg_class AS c ON i.indrelid = c.oid
WHERE c.oid = $1::text::regclass AND pg_get_indexdef(indexrelid) NOT LIKE '%USING brin%' GROUP BY c.oid
"""


async def test_partition_keeps_its_name_indexes_constraints_grants_options_and_comment(
    journal: Database,
) -> None:
    async with journal.session() as session:
        await session.execute(f'CREATE INDEX "By Tag" ON {TABLE} USING gin (tags)')
        await session.execute("CREATE INDEX ON projections.events (event_type) WHERE version > 1")
        await session.execute(f"GRANT SELECT ON {TABLE} TO projections_reader WITH GRANT OPTION")
        await session.execute(f"GRANT SELECT ON {TABLE} TO PUBLIC")
        await session.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off, fillfactor = 90)")
        await session.execute(f"COMMENT ON TABLE {TABLE} IS 'it''s of 2020'")
        before = await session.fetchrow(SHAPE, TABLE)

        await cluster_once(journal)

        assert dict(await session.fetchrow(SHAPE, TABLE) or {}) == dict(before or {})
        # Each is part of the log's index: else a new one would have been built while everybody waited.
        assert await session.fetchval(
            "SELECT count(*) FROM pg_inherits WHERE inhrelid IN "
            "(SELECT indexrelid FROM pg_index WHERE indrelid = $1::text::regclass)",
            TABLE,
        ) == await session.fetchval(
            "SELECT count(*) FROM pg_index WHERE indrelid = 'projections.events'::regclass"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        f"CREATE TRIGGER t BEFORE INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY",
        f"CREATE PUBLICATION p FOR TABLE {TABLE}",
    ],
    ids=lambda change: " ".join(change.split()[:2]),
)
async def test_partition_with_what_a_copy_would_not_have_is_left_alone(
    journal: Database, change: str
) -> None:
    await value(journal, change)

    partition = await cluster_once(journal)

    assert "of its own" in str(partition.problem)
    assert (await clustered_names(journal), await count(journal)) == ([], EVENTS)


async def test_role_that_does_not_own_the_schema_is_refused(dsn: str, journal: Database) -> None:
    async with connect(dsn) as database, database.session() as session:
        await session.execute("SET ROLE projections_worker")
        for function in ("cluster", "swap"):
            with pytest.raises(MissingPrivilege):
                await session.execute(f"SELECT projections._{function}_partition_v1($1)", NAME)


def _run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["maintain", *arguments, "--cluster"])
    return result.exit_code, result.stdout


@pytest.mark.slow
def test_command_tells_what_it_did_as_json_and_a_second_run_does_nothing(dsn: str, journal: Database) -> None:
    code, output = _run("--dsn", dsn, "--ahead", "1", "--json")

    (done,) = json.loads(output)["clustered"]
    assert code == 0
    assert (done["name"], done["events"], done["problem"]) == (NAME, EVENTS, None)
    assert (done["from"], done["to"]) == (PAST.isoformat(), (PAST + DAY).isoformat())
    assert min(done["bytes_before"], done["bytes_after"], done["seconds"]) > 0
    assert _run("--dsn", dsn, "--ahead", "1") == (0, "nothing to do\n")


@pytest.mark.slow
def test_command_tells_what_it_did_in_lines(dsn: str, journal: Database) -> None:
    arguments = "--dsn", dsn, "--ahead", "1", "--closed-for", "90000d"
    assert _run(*arguments)[0] == 0  # makes the partitions of matches
    assert _run(*arguments) == (0, "nothing to do\n")

    code, output = _run("--dsn", dsn, "--ahead", "1")

    assert code == 0
    assert output.startswith(f"in slice order: {NAME}: {EVENTS} events, ")


async def test_command_exits_with_1_where_a_partition_could_not_be_done(dsn: str, journal: Database) -> None:
    await value(journal, f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")

    code, output = await asyncio.to_thread(_run, "--dsn", dsn, "--ahead", "1")

    assert code == 1
    assert output.splitlines()[-1].startswith(f"not in slice order: {NAME}: partition {NAME} has ")


@pytest.mark.parametrize("wrong", [{"closed_for": -DAY}, {"patience": -DAY}, {"attempts": 0}], ids=str)
async def test_setting_out_of_bounds_is_refused(database: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        await cluster(database, **wrong)
