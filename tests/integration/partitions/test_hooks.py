"""Parts above the journal take part in its maintenance by functions with the names of hooks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal import Database, DatabaseError, connect, schema
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.retention import NAMES, filled, group, kept_by, retained
from tests.fixtures.schema import run

ANYBODY = """
CREATE FUNCTION projections._hook_{}_anybody_v1({}) RETURNS {} LANGUAGE sql AS $$ {} $$
"""
HOLDERS = "TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)"
HOLD = (
    "VALUES ('events', 'anybody', 'me', '2020-01-02Z'::timestamptz, '2020-01-02Z'::timestamptz, 'reads it')"
)
PLACES = "TABLE (holder text, reason text, range text, place bigint)"
PARTITION = "p_partition projections.partitions"


async def hook(database: Database, name: str, arguments: str, returned: str, body: str) -> None:
    await execute(database, ANYBODY.format(name, arguments, returned, body))


async def maintained(database: Database) -> None:
    while await fetchval(database, "SELECT count(*) FROM projections.maintain_v1()"):
        pass


async def test_a_part_that_needs_a_time_keeps_its_partition(database: Database) -> None:
    await filled(database)
    await hook(database, "holders", "", HOLDERS, HOLD)

    done = await retained(database)

    assert [each.partition.name for each in done.dropped] == [NAMES[0], NAMES[2]]
    assert (await kept_by(database))[NAMES[1]] == ("projection me reads it",)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "held"), [(4, True), (5, False), (6, False), (None, True)])
async def test_a_part_that_has_gone_back_keeps_the_partition(
    database: Database, place: int | None, held: bool
) -> None:
    await filled(database)
    await hook(
        database, "places", PARTITION, PLACES,
        f"SELECT 'me', 'has gone back', '7', {'NULL' if place is None else place}::bigint",
    )  # fmt: skip
    newly = (
        "SELECT projections._newly_held_v1(p, '{\"anybody 7\": 5}') FROM projections.partitions AS p LIMIT 1"
    )

    assert await fetchval(database, newly) == ("me has gone back" if held else None)


async def test_what_a_part_locks_is_locked_when_it_is_told_that_a_partition_leaves(
    database: Database,
) -> None:
    await filled(database)
    await execute(database, "CREATE TABLE public.seen (name text, locked bigint)")
    await execute(database, "CREATE TABLE public.mine ()")
    await hook(database, "locks", "", "SETOF text", "VALUES ('public.mine')")
    await hook(
        database, "drop", PARTITION, "bigint",
        "INSERT INTO public.seen SELECT p_partition.name, count(*) FROM pg_locks AS l "
        "WHERE l.relation = 'public.mine'::regclass AND l.mode = 'ShareLock' AND l.pid = pg_backend_pid() "
        "RETURNING locked",
    )  # fmt: skip

    await retained(database)

    seen = "SELECT array_agg(s.name || ' ' || s.locked ORDER BY s.name) FROM public.seen AS s"
    assert await fetchval(database, seen) == [f"{name} 1" for name in NAMES]


@pytest.mark.slow
async def test_maintenance_from_sql_alone_calls_each_part_in_the_order_of_their_names(
    database: Database,
) -> None:
    await group(database)
    await fetchval(database, "SELECT projections.subscribe_v1('billing', p_expires_after => '1 minute')")
    await execute(database, "UPDATE projections.subscriptions SET active_at = active_at - interval '1 hour'")
    await execute(database, "CREATE TABLE public.seen (subscriptions bigint)")
    await hook(
        database, "maintain", "", "bigint",
        "INSERT INTO public.seen SELECT count(*) FROM projections.subscriptions RETURNING 0::bigint",
    )  # fmt: skip

    await maintained(database)

    assert await fetchval(database, "SELECT array_agg(s.subscriptions) FROM public.seen AS s") == [1]
    assert await fetchval(database, "SELECT count(*) FROM projections.subscriptions") == 0


@pytest.mark.slow
async def test_a_part_that_fails_is_reported_and_partitions_are_made_before(database: Database) -> None:
    await hook(database, "maintain", "", "bigint", "SELECT 1 / 0::bigint")

    missing = "SELECT count(*) FROM projections._maintenance_steps_v1()"
    assert await fetchval(database, missing) > 0

    with pytest.raises(DatabaseError, match="division by zero"):
        await maintained(database)

    assert await fetchval(database, missing) == 0


async def test_all_of_what_a_part_removes_in_pieces_is_removed_and_counted(database: Database) -> None:
    await execute(database, "CREATE TABLE public.rest AS SELECT n FROM generate_series(1, 5) AS n")
    await hook(
        database, "maintain", "", "bigint",
        "WITH gone AS (DELETE FROM public.rest WHERE n IN (SELECT n FROM public.rest LIMIT 2) RETURNING 1) "
        "SELECT count(*) FROM gone",
    )  # fmt: skip

    assert (await retained(database)).removed == {
        "anybody": 5,
        "message_ids": 0,
        "subscriptions": 0,
        "webhooks": 0,
    }


async def test_only_who_owns_the_schema_makes_hooks(
    database: Database, login: Callable[[str | None], str]
) -> None:
    async with connect(login("projections_worker")) as other:
        with pytest.raises(DatabaseError, match="permission denied for schema projections"):
            await hook(other, "maintain", "", "bigint", "SELECT 1::bigint")


@pytest.mark.slow
def test_verifying_tells_of_a_hook_that_is_not_ours_or_is_gone(dsn: str) -> None:
    run(dsn, ANYBODY.format("maintain", "", "bigint", "SELECT 0::bigint"))
    run(dsn, "DROP FUNCTION projections._hook_holders_subscriptions_v1()")

    told = [str(each) for each in schema.verify(dsn)]

    assert len(told) >= 2
    assert any("_hook_maintain_anybody_v1" in each for each in told)
    assert any("_hook_holders_subscriptions_v1" in each for each in told)


async def test_there_are_no_settings_of_a_table_that_is_not_there(database: Database) -> None:
    with pytest.raises(DatabaseError, match="table_is_partitioned"):
        await execute(database, "INSERT INTO projections.partition_settings (table_name) VALUES ('none')")
