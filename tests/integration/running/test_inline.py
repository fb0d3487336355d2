"""Projections that are handled in the transaction that appends: once, by it or by a worker."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

import offsets
from journal import Database, DatabaseError, append, append_sync
from projections import (
    AtLeastOnce,
    Event,
    EventEnvelope,
    Inline,
    InvalidHandler,
    ProjectionFailed,
    Session,
    handles,
    handles_group,
    projection,
    reacts,
)
from projections.monitoring import projection_lags
from projections.testing import run_until_caught_up
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.connections import WAYS, Way, by_asyncpg, by_psycopg_async, by_psycopg_sync
from tests.fixtures.inline import (
    COUNTED,
    DELAYS,
    TWINS,
    Recording,
    counted,
    counting,
    event,
    inline,
    inline_journal,
    mode,
)
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import (
    Happened,
    caught_up,
    execute,
    fetchval,
    happen,
    running,
    until,
)
from tests.fixtures.rebuilds import ONE, Gate, fence_passes

GATE = f"SELECT EXISTS (SELECT FROM {WAITING} WHERE locktype = 'advisory')"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with inline_journal(dsn) as pool:
        yield pool


@pytest.mark.parametrize("way", WAYS)
class TestEveryConnection:
    @pytest.mark.slow
    async def test_what_is_appended_is_handled_in_the_same_transaction(
        self, journal: Database, dsn: str, way: Way
    ) -> None:
        async with way(dsn) as caller:
            await caller.call(TWINS, [event("a"), event("b"), event("a")])
            await caller.execute("INSERT INTO effects (source_id, seq_nr) SELECT source_id, n FROM counts")
            await caller.call(TWINS, [event("a")])
            before = await counted(journal)
        after = await counted(journal)
        await run_until_caught_up(journal, DELAYS)

        assert (before, after) == ((0, 0), (4, 0))
        assert await counted(journal) == (4, 0)
        assert await fetchval(journal, "SELECT n FROM kinds") == 4
        assert await fetchval(journal, "SELECT array_agg(seq_nr ORDER BY seq_nr) FROM effects") == [1, 2]

    @pytest.mark.slow
    async def test_a_handler_that_fails_leaves_nothing_even_where_the_caller_goes_on(
        self, journal: Database, dsn: str, way: Way
    ) -> None:
        try:
            async with way(dsn) as caller:
                with pytest.raises(
                    ProjectionFailed, match=r"inline, projection 'p', event 'Happened' of .* number -1"
                ):
                    await caller.call(TWINS, [event("a"), event("b", -1)])
        except Exception:  # noqa: BLE001 - some drivers say that this cannot commit, others roll back
            pass

        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (0, 0)
        assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 0

    @pytest.mark.slow
    async def test_texts_and_nulls_arrive_whatever_the_settings_of_the_connection(
        self, journal: Database, dsn: str, way: Way
    ) -> None:
        async with way(dsn) as caller:
            if caller.connection.__class__.__module__.startswith("psycopg"):
                await caller.execute("SET client_encoding = 'LATIN1'")
                await caller.execute("SET array_nulls = off")
            await caller.call(TWINS, [event("ä"), event("✈")])

        assert await fetchval(journal, "SELECT array_agg(source_id ORDER BY source_id) FROM counts") == [
            "ä",
            "✈",
        ]


class TestWhoHandles:
    """The append where it may; else a worker."""

    @pytest.mark.slow
    async def test_a_projection_that_is_live(self, journal: Database) -> None:
        async with journal.session() as session:
            await Inline(DELAYS).set_mode(session, "live")

        await inline(journal, event())

        assert await counted(journal) == (0, 0)
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (1, 1)

    @pytest.mark.slow
    async def test_a_projection_that_is_paused(self, journal: Database) -> None:
        async with journal.session() as session:
            await offsets.set_paused(session, "p", paused=True)
            await inline(journal, event())
            before = await counted(journal)
            await offsets.set_paused(session, "p", paused=False)
        await run_until_caught_up(journal, DELAYS)

        assert (before, await counted(journal)) == ((0, 0), (1, 1))

    async def test_another_version_of_its_code(self, journal: Database) -> None:
        later = Inline(counting(version=2))

        async with journal.transaction() as session:
            await later.append(session, [event()])

        assert await counted(journal) == (0, 0)

    async def test_a_source_that_has_an_event_between_what_is_handled_and_what_is_appended(
        self, journal: Database
    ) -> None:
        await inline(journal, event("a"))
        await happen(journal, "a")
        await inline(journal, event("a"), event("b"))

        assert await counted(journal) == (2, 0)
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (4, 2)

    @pytest.mark.slow
    async def test_a_source_whose_events_before_are_not_handled(self, journal: Database) -> None:
        await happen(journal, "a")
        await inline(journal, event("a"), event("b"))
        between = await counted(journal)
        await run_until_caught_up(journal, DELAYS)
        caught = await counted(journal)
        await inline(journal, event("a"), event("b"))

        assert (between, caught) == ((1, 0), (3, 2))
        assert await counted(journal) == (5, 2)
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (5, 2)

    @pytest.mark.slow
    async def test_a_source_that_is_parked(self, journal: Database) -> None:
        await happen(journal, "a", n=-1)
        await caught_up(journal, DELAYS)
        await inline(journal, event("a"), event("b"))

        assert await counted(journal) == (1, 0)
        await caught_up(journal, DELAYS)
        assert await counted(journal) == (1, 0)

    @pytest.mark.slow
    async def test_a_source_whose_offset_was_evicted(self, journal: Database) -> None:
        await inline(journal, event("a"))
        await happen(journal, "b")
        await run_until_caught_up(journal, DELAYS)
        await execute(journal, "UPDATE projections.projections SET evicted_before = clock_timestamp()")
        await execute(journal, "DELETE FROM projections.source_offsets")

        await inline(journal, event("a"), event("b"), event("c"))

        assert await counted(journal) == (5, 1)
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (5, 1)

    async def test_an_event_of_another_type(self, journal: Database) -> None:
        await inline(journal, Event("x", Happened(), "airport"))

        assert await counted(journal) == (0, 0)
        assert await fetchval(journal, "SELECT count(*) FROM projections.source_offsets") == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("handled", [True, False])
    async def test_an_event_that_was_stored_before(self, journal: Database, handled: bool) -> None:
        first, second = event("a", event_id=UUID(int=1)), event("a", event_id=UUID(int=2))
        await (inline(journal, first) if handled else append_plainly(journal, first))

        await inline(journal, first, second)

        assert await counted(journal) == ((2, 0) if handled else (0, 0))
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == ((2, 0) if handled else (2, 2))

    async def test_a_projection_that_has_never_run(self, journal: Database) -> None:
        unknown = Inline(counting("unknown"))

        async with journal.transaction() as session:
            await unknown.append(session, [event()])

        assert await counted(journal) == (0, 0)

    @pytest.mark.slow
    async def test_workers_that_run_meanwhile(self, journal: Database) -> None:
        async with running(journal, DELAYS, ranges=2) as told:
            for _ in range(20):
                await inline(journal, event("a"), event("b"))
                await happen(journal, "c", "d")
                await inline(journal, event("c"), event("a"))
            await until(journal, f"SELECT ({COUNTED}) = 120")
            await happen(journal, "a")
            await until(journal, f"SELECT ({COUNTED}) = 121")

        assert told.names("error", "failed") == []


async def append_plainly(database: Database, *events: Event) -> None:
    async with database.transaction() as session:
        await append(session, events)


@pytest.mark.slow
async def test_lag_is_what_nobody_has_handled(journal: Database) -> None:
    async def lag() -> tuple[int, int]:
        async with journal.session() as session:
            (found,) = await projection_lags(session, ["p"])
        return found.backlog, len([part for part in found.ranges if part.backlog])

    await inline(journal, event("a"), event("b"))
    handled = await lag()
    await happen(journal, "c")
    await inline(journal, event("c"), event("a"))
    left = await lag()
    await mode(journal, "live")
    live = await lag()
    await run_until_caught_up(journal, DELAYS)

    assert (handled, left, live) == ((0, 0), (2, 1), (2, 1))
    assert await lag() == (0, 0)


class TestRaces:
    @pytest.mark.slow
    async def test_a_change_of_mode_waits_for_what_is_being_handled(
        self, journal: Database, dsn: str
    ) -> None:
        async with journal.session() as other:
            async with by_asyncpg(dsn) as caller:
                await caller.call(TWINS, [event("a")])
                change = asyncio.create_task(offsets.set_mode(other, "p", "live"))
                await until(journal, GATE)
                assert not change.done()
            await change
        await inline(journal, event("a"))

        assert await counted(journal) == (1, 0)
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (2, 1)

    @pytest.mark.slow
    async def test_a_change_that_waits_for_a_transaction_left_open_lets_others_append(
        self, journal: Database, dsn: str
    ) -> None:
        await mode(journal, "inline", "q")  # it has no row that all transactions write
        recording = Inline(Recording)
        async with journal.session() as other:
            async with by_asyncpg(dsn) as caller:
                await recording.append(caller.connection, [event("a")])
                change = asyncio.create_task(offsets.set_mode(other, "q", "live"))
                await until(journal, GATE)
                async with asyncio.timeout(300), journal.transaction() as session:
                    await recording.append(session, [event("b")])
                assert not change.done()
            await change

        assert await fetchval(journal, "SELECT count(*) FROM effects") == 2
        assert await fetchval(journal, "SELECT mode FROM projections.projections WHERE name = 'q'") == "live"

    @pytest.mark.slow
    async def test_a_change_has_the_lock_timeout_of_its_session(self, journal: Database, dsn: str) -> None:
        async with journal.session() as other, by_asyncpg(dsn) as caller:
            await caller.call(TWINS, [event("a")])
            await other.begin()
            await other.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(DatabaseError, match="lock timeout"):
                await offsets.set_mode(other, "p", "live")
            await other.rollback()

    @pytest.mark.slow
    async def test_a_change_that_its_own_transaction_keeps_waiting_is_a_deadlock(
        self, journal: Database, dsn: str
    ) -> None:
        async with journal.session() as other:
            await other.begin()
            await other.execute("LOCK TABLE kinds")
            late = asyncio.create_task(inline(journal, event("a")))
            await until(journal, f"SELECT EXISTS (SELECT FROM {WAITING} WHERE locktype = 'relation')")
            results = await asyncio.gather(offsets.clear_offset(other, "p"), return_exceptions=True)
            await other.rollback()
            results += await asyncio.gather(late, return_exceptions=True)

        assert [getattr(result, "sqlstate", None) for result in results].count("40P01") == 1

    @pytest.mark.slow
    async def test_an_append_that_came_after_a_change_goes_by_it(self, journal: Database) -> None:
        async with journal.session() as other:
            await other.begin()
            await offsets.set_mode(other, "p", "live")
            late = asyncio.create_task(inline(journal, event("a")))
            await until(journal, GATE)
            await other.commit()
            await late

        assert await counted(journal) == (0, 0)
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (1, 1)

    async def test_an_offset_that_is_cleared_is_not_gone_on_from(self, journal: Database) -> None:
        await inline(journal, event("a"))
        async with journal.session() as other:
            await other.begin()
            await other.execute("TRUNCATE counts, kinds")
            await offsets.clear_offset(other, "p")
            late = asyncio.create_task(inline(journal, event("a")))
            await until(journal, GATE)
            await other.commit()
            await late

        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (2, 2)

    @pytest.mark.slow
    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    async def test_an_older_snapshot_cannot_go_on_from_an_offset_that_was_cleared(
        self, journal: Database, dsn: str, level: str
    ) -> None:
        await inline(journal, event("b"))
        await execute(journal, "UPDATE projections.projections SET evicted_before = clock_timestamp()")
        await execute(journal, "DELETE FROM projections.source_offsets")
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        await connection.execute("SELECT FROM projections.projections")
        async with journal.session() as other:
            await offsets.clear_offset(other, "p")

        with pytest.raises(DatabaseError, match="could not serialize"):
            await TWINS[0](connection, [event("b")])
        await connection.close()

        await execute(journal, "TRUNCATE counts, kinds")
        await run_until_caught_up(journal, DELAYS)
        assert await counted(journal) == (1, 1)

    @pytest.mark.slow
    async def test_appends_of_many_do_not_deadlock_on_rows_that_they_share(
        self, journal: Database, dsn: str
    ) -> None:
        async def append_often(number: int) -> None:
            connection = await asyncpg.connect(dsn)
            for turn in range(20):
                async with connection.transaction():
                    sources = [f"s{(number * 7 + turn * k) % 5}" for k in (1, 3, 2)]
                    await TWINS[0](connection, [event(source) for source in sources])
            await connection.close()

        async with running(journal, DELAYS, ranges=3):
            await asyncio.gather(
                *map(append_often, range(6)), *(happen(journal, f"s{n % 5}") for n in range(40))
            )
            await until(journal, f"SELECT ({COUNTED}) = 400")

        assert await fetchval(journal, "SELECT n FROM kinds") == 400

    @pytest.mark.slow
    async def test_a_rebuild_and_what_is_appended_meanwhile(self, journal: Database, dsn: str) -> None:
        await inline(journal, event("a"), event("b"))
        await fence_passes(journal)

        async def meanwhile() -> None:
            await inline(journal, event("a"), event("c"))

        result = await Gate(journal, dsn, DELAYS).at("fold", meanwhile)
        await inline(journal, event("a"), event("d"))
        left = await counted(journal)
        await run_until_caught_up(journal, DELAYS)
        await inline(journal, event("a"))

        assert (result.events, left) == (2, (3, 0))
        assert await counted(journal) == (7, 3)
        assert await fetchval(journal, "SELECT n FROM kinds") == 7

    @pytest.mark.slow
    async def test_a_rebuild_is_not_swapped_in_beside_a_transaction_that_handles(
        self, journal: Database, dsn: str
    ) -> None:
        await inline(journal, event("a"))
        await fence_passes(journal)
        gate = Gate(journal, dsn, DELAYS)
        handled = asyncio.Event()
        async with by_psycopg_sync(dsn) as caller:

            async def handle() -> None:
                await caller.call(TWINS, [event("b")])
                handled.set()

            task = asyncio.create_task(gate.at("swap", handle))
            await handled.wait()
            await until(journal, f"SELECT EXISTS (SELECT FROM {WAITING} WHERE locktype = 'advisory')")
        await task
        await run_until_caught_up(journal, DELAYS)

        assert (await counted(journal))[0] == 2
        assert await rebuild(journal, dsn, DELAYS, ONE)


class TestHandlersByStatements:
    async def test_are_handled_inline_on_an_asynchronous_connection(
        self, journal: Database, dsn: str
    ) -> None:
        await mode(journal, "inline", "q")
        both = Inline(Recording, DELAYS)

        async with by_asyncpg(dsn) as caller:
            await both.append(caller.connection, [event("a"), event("a")])
        await run_until_caught_up(journal, DELAYS, Recording)

        assert await fetchval(journal, "SELECT array_agg(seq_nr ORDER BY n) FROM effects") == [1, 2]
        assert await counted(journal) == (2, 0)

    @pytest.mark.slow
    @pytest.mark.parametrize("by", [by_asyncpg, by_psycopg_async])
    async def test_of_two_that_deadlock_one_calls_its_handlers_again(
        self, journal: Database, dsn: str, by: Any
    ) -> None:
        await execute(journal, "CREATE TABLE pair (k int PRIMARY KEY, n int)")
        await execute(journal, "INSERT INTO pair VALUES (1, 0), (2, 0)")
        both_have_one = asyncio.Barrier(2)
        calls = []

        @projection("q", entity_type="plane")
        class Totals:
            @handles(Happened)
            async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
                calls.append(envelope.source_id)
                await session.execute("UPDATE pair SET n = n + 1 WHERE k = $1", event.n)
                if len(calls) <= 2:
                    await both_have_one.wait()

        async def append_in_order(source_id: str, *keys: int) -> None:
            async with by(dsn) as caller:
                await Inline(Totals).append(caller.connection, [event(source_id, key) for key in keys])

        await mode(journal, "inline", "q")
        await asyncio.gather(append_in_order("a", 1, 2), append_in_order("b", 2, 1))
        await run_until_caught_up(journal, DELAYS, Totals)

        assert await fetchval(journal, "SELECT array_agg(n ORDER BY k) FROM pair") == [2, 2]
        assert len(calls) >= 6  # each calls for two events, and one of them once more
        assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 4

    @pytest.mark.slow
    @pytest.mark.parametrize("catches", [True, False])
    async def test_an_error_of_the_database_does_not_commit(
        self, journal: Database, dsn: str, catches: bool
    ) -> None:
        await mode(journal, "inline", "q")

        @projection("q", entity_type="plane")
        class Catching(Recording):
            @handles(Happened)
            async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
                try:
                    await session.execute("SELECT 1 / 0")
                except DatabaseError:
                    if not catches:
                        raise

        async with by_asyncpg(dsn) as caller:
            with pytest.raises(ProjectionFailed, match="division by zero"):
                await Inline(Catching).append(caller.connection, [event()])

        assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 0

    async def test_are_refused_on_a_synchronous_connection(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection, pytest.raises(InvalidHandler, match="'q' are asynchronous"):
            Inline(Recording).append_sync(connection, [event()])


class TestRefused:
    async def test_without_a_transaction(self, journal: Database, dsn: str) -> None:
        alone = await asyncpg.connect(dsn)
        async with (
            journal.session() as session,
            await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other,
        ):
            for connection in (alone, session, other):
                with pytest.raises(DatabaseError, match="begin a transaction"):
                    await TWINS[0](connection, [event()])
        with (
            psycopg.connect(dsn, autocommit=True) as connection,
            pytest.raises(DatabaseError, match="begin a trans"),
        ):
            TWINS[1](connection, [event()])
        await alone.close()

        assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 0

    async def test_what_is_no_connection(self, dsn: str) -> None:
        with pytest.raises(
            TypeError, match=r"int is not a supported connection: pass a Session, or asyncpg's"
        ):
            await TWINS[0](1, [event()])
        async with by_asyncpg(dsn) as caller:
            with pytest.raises(TypeError, match="for an asynchronous one there is append"):
                TWINS[1](caller.connection, [event()])

    def test_projections_that_only_workers_can_run(self) -> None:
        class Lists:
            @handles_group(Happened)
            async def happened(self, session: Session, events: Any) -> None: ...

        class Hooked(Recording):
            async def start(self) -> None: ...

        class Reacting(Recording):
            @reacts(Happened)
            async def react(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

        for cls, options, reason in [
            (Lists, {}, "lists of events"),
            (Hooked, {}, "start"),
            (Reacting, {}, "reactions"),
            (Recording, {"delivery": AtLeastOnce()}, "at least once"),
        ]:
            with pytest.raises(InvalidHandler, match=f"'r' cannot be inline: .*{reason}"):
                Inline(projection("r", entity_type="plane", **options)(type("R", (cls,), {})))  # type: ignore[call-overload]

    @pytest.mark.parametrize("version", [1, 2])
    def test_two_of_one_name(self, version: int) -> None:
        with pytest.raises(InvalidHandler, match="'p' is given twice"):
            Inline(DELAYS, Recording, counting(version=version))


async def test_a_name_of_a_table_means_what_it_means_to_the_caller(journal: Database, dsn: str) -> None:
    await execute(journal, "CREATE SCHEMA other CREATE TABLE counts (source_id text PRIMARY KEY, n int, last bigint) "
                  "CREATE TABLE kinds (kind text PRIMARY KEY, n bigint)")  # fmt: skip
    for _ in range(2):
        await inline(journal, event("a"))
        with psycopg.connect(dsn, options="-c search_path=other") as connection:
            TWINS[1](connection, [event("b")])

    assert await fetchval(journal, "SELECT array_agg(source_id || n) FROM counts") == ["a2"]
    assert await fetchval(journal, "SELECT array_agg(source_id || n) FROM other.counts") == ["b2"]


async def test_a_name_of_a_table_means_what_it_means_to_the_role(journal: Database, dsn: str) -> None:
    roles = [f"{name}_{secrets.token_hex(4)}" for name in ("some", "other")]  # of the whole server
    for role in roles:
        await execute(journal, f"CREATE ROLE {role} IN ROLE projections_writer")
        await execute(journal, f"CREATE SCHEMA {role} CREATE TABLE counts (source_id text PRIMARY KEY, n int, last int)"
                      " CREATE TABLE kinds (kind text PRIMARY KEY, n int)")  # fmt: skip
        await execute(journal, f"GRANT ALL ON SCHEMA {role} TO public")
        await execute(journal, f"GRANT ALL ON {role}.counts, {role}.kinds TO public")
    with psycopg.connect(dsn) as connection:
        for role in roles:
            connection.execute(f"SET LOCAL ROLE {role}")  # type: ignore[call-overload]  # no literal
            TWINS[1](connection, [event(role)])
            connection.execute("RESET ROLE")

    found = [await fetchval(journal, f"SELECT array_agg(source_id) FROM {role}.counts") for role in roles]
    for role in roles:
        await execute(journal, f"DROP SCHEMA {role} CASCADE")
        await execute(journal, f"DROP ROLE {role}")
    assert found == [[role] for role in roles]


async def test_a_temporary_table_in_the_place_of_one_is_refused(journal: Database, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TEMPORARY TABLE counts (source_id text PRIMARY KEY, n int, last int)")
        with pytest.raises(ProjectionFailed, match="counts is a temporary table here"):
            TWINS[1](connection, [event()])
    await inline(journal, event())

    assert await counted(journal) == (1, 0)


async def test_what_others_put_into_the_schemas_of_the_caller_is_not_called(
    journal: Database, dsn: str
) -> None:
    await execute(
        journal,
        "CREATE FUNCTION concat_ws(text, name, text) RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text'",
    )
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TEMPORARY TABLE source_offsets (seq_nr int)")
        TWINS[1](connection, [event("a")])

    assert await counted(journal) == (1, 0)


async def test_a_writer_needs_no_right_on_offsets(journal: Database, dsn: str) -> None:
    await execute(journal, "GRANT ALL ON counts, kinds TO projections_writer")
    with psycopg.connect(dsn) as connection:
        connection.execute("SET ROLE projections_writer")
        TWINS[1](connection, [event("a")])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT FROM projections.source_offsets")
        connection.rollback()
        connection.execute("SET ROLE projections_writer")
        TWINS[1](connection, [event("a")])

    assert await counted(journal) == (1, 0)


@pytest.mark.slow
async def test_without_projections_it_appends(journal: Database, dsn: str) -> None:
    async with journal.transaction() as session:
        first = await Inline().append(session, [event(event_id=UUID(int=1))])
        again = await Inline().append(session, [event(event_id=UUID(int=1)), event()])

    assert [one.seq_nr for one in [*first, *again]] == [1, 1, 2]
    assert (first.are_new, again.are_new) == ([True], [False, True])
    with psycopg.connect(dsn) as connection:
        assert Inline().append_sync(connection, []) == append_sync(connection, []) == []
