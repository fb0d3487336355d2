"""What the database refuses, by class: what counts against the event, and what it only waits for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import offsets
from journal import Database, DatabaseError
from journal.database.faults import Fault, fault_of_code, sqlstate_of
from projections import (
    AtLeastOnce,
    Changes,
    EventEnvelope,
    Recovery,
    Session,
    Table,
    handles,
    handles_group,
    projection,
)
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Does,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    record,
    recording,
    running,
    settings,
    until,
)

DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
WAITS = f"SELECT EXISTS ({WAITING})"


def raised(code: str) -> str:
    """For what cannot be brought about, or only at great cost."""
    return f"DO $$ BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '{code}'; END $$"


def does(*statements: str) -> str:
    return f"DO $do$ BEGIN {'; '.join(statements)}; END $do$"


OF_THE_EVENT = {
    "09000": raised("09000"),
    "10608": raised("10608"),
    "20000": does("CASE 3 WHEN 1 THEN NULL; END CASE"),
    "21000": "SELECT (SELECT 1 UNION SELECT 2)",
    "22012": "SELECT 1 / 0",
    "23505": "INSERT INTO effects (n) VALUES (-1), (-1)",
    "27000": raised("27000"),
    "2F005": does(
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN END'", "PERFORM pg_temp.f()"
    ),
    "38000": raised("38000"),
    "44000": does(
        "CREATE TEMP VIEW v AS SELECT * FROM effects WHERE seq_nr < 0 WITH CHECK OPTION",
        "INSERT INTO v (seq_nr) VALUES (1)",
    ),
    "53400": raised("53400"),
    "54001": does(
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN pg_temp.f(); END'",
        "PERFORM pg_temp.f()",
    ),
    "P0001": raised("P0001"),
    "P0004": does("ASSERT FALSE"),
    "XX000": raised("XX000"),
    "AB123": raised("AB123"),
}
OF_THE_PROJECTION = {
    "03000": raised("03000"),
    "0A000": "SELECT count(DISTINCT x) OVER () FROM (VALUES (1)) AS v (x)",
    "0B000": raised("0B000"),
    "0F001": raised("0F001"),
    "0LP01": raised("0LP01"),
    "0P000": raised("0P000"),
    "0Z002": raised("0Z002"),
    "24000": raised("24000"),
    "25001": "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "2BP01": does("CREATE TEMP TABLE t ()", "CREATE TEMP VIEW v AS SELECT FROM t", "DROP TABLE t"),
    "2D000": does("COMMIT"),
    "34000": "FETCH nobody",
    "39P01": raised("39P01"),
    "3B001": "ROLLBACK TO SAVEPOINT nobody",
    "3F000": "CREATE TABLE nowhere.t ()",
    "42P01": "INSERT INTO nowhere VALUES (1)",
    "42703": "SELECT nothing FROM effects",
    "42601": "SELEC 1",
    "42501": raised("42501"),
    "55000": does("CREATE TEMP SEQUENCE s", "PERFORM currval('s')"),
}
ON_A_CONNECTION_THAT_LIVES = {
    "08006": raised("08006"),
    "26000": "EXECUTE nobody",
    "28000": raised("28000"),
    "3D000": raised("3D000"),
    "F0000": raised("F0000"),
    "HV00N": raised("HV00N"),
    "XX001": raised("XX001"),
}
MAY_BE_OF_ALL = OF_THE_PROJECTION | ON_A_CONNECTION_THAT_LIVES
OF_THE_DATABASE = {
    "25006": does("SET LOCAL transaction_read_only = on", "INSERT INTO effects (n) VALUES (-1)"),
    "53100": raised("53100"),
    "53200": raised("53200"),
    "57P01": "SELECT pg_terminate_backend(pg_backend_pid())",
    "58030": raised("58030"),
}
OF_THE_BATCH = {
    "40001": raised("40001"),
    "40P01": raised("40P01"),
    "55006": raised("55006"),
    "55P03": raised("55P03"),
    "57014": raised("57014"),
    "72000": raised("72000"),
}


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


async def parked(database: Database, name: str = "p") -> list[str]:
    async with database.session() as session:
        return [source.source_id for source in await offsets.ParkedSources(session).list(name)]


def at_b(statement: str, times: int) -> Does:
    """Run a statement at source b, so many times."""
    left = times

    async def run(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal left
        if envelope.source_id == "b" and left:
            left -= 1
            await session.execute(statement)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("code", "statement"), OF_THE_EVENT.items(), ids=list(OF_THE_EVENT))
async def test_what_is_refused_of_an_event_is_its_own_fault(
    journal: Database, code: str, statement: str
) -> None:
    await happen(journal, "a", "b", "c")

    told = await caught_up(journal, recording(at_b(statement, 9), recovery=NO_RETRY))

    assert fault_of_code(code) is Fault.EVENT
    assert await parked(journal) == ["b"]
    each_once(await effects(journal), a=1, c=1)
    [(_, _, error)] = told.all("parked")
    assert getattr(error.__cause__, "sqlstate", None) == code


@pytest.mark.daily(3)
@pytest.mark.parametrize(("code", "statement"), MAY_BE_OF_ALL.items(), ids=list(MAY_BE_OF_ALL))
async def test_what_fails_one_event_alone_counts_against_it_and_is_tried_again_by_itself(
    journal: Database, code: str, statement: str
) -> None:
    await happen(journal, "a", "b", "c", "b")

    async with running(journal, recording(at_b(statement, 4), recovery=NO_RETRY)) as told:
        await until(journal, "SELECT count(*) = 4 FROM effects")

    assert fault_of_code(code) is (Fault.PROJECTION if code in OF_THE_PROJECTION else Fault.DATABASE)
    assert await parked(journal) == []
    each_once(await effects(journal), a=1, b=2, c=1)
    assert told.names("parked", "skipped") == ["parked"]
    assert told.names("failed") == ["failed"] * (code == "XX001")  # the connection is doubted first
    assert [attempt for *_, attempt in told.all("error")] == [1, 2][: 1 if code == "XX001" else 2]


@pytest.mark.daily(3)
@pytest.mark.parametrize(("code", "statement"), MAY_BE_OF_ALL.items(), ids=list(MAY_BE_OF_ALL))
async def test_what_fails_every_event_alike_stops_the_range_and_no_event_is_passed_over(
    journal: Database, code: str, statement: str
) -> None:
    left = 5  # of each of three, in a batch and alone; the last time it stops

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal left
        if left:
            left -= 1
            await session.execute(statement)

    await happen(journal, "a", "b", "c")

    told = await caught_up(
        journal, recording(fail, recovery=Recovery.skip()), settings=settings(alike_failures=2)
    )

    assert told.names("failed", "skipped", "error") == ["failed"]
    [(_, _, error)] = told.all("failed")
    assert sqlstate_of(error) == code
    each_once(await effects(journal), a=1, b=1, c=1)


@pytest.mark.daily(2)
@pytest.mark.parametrize(("code", "statement"), OF_THE_DATABASE.items(), ids=list(OF_THE_DATABASE))
async def test_what_is_the_fault_of_the_server_counts_against_no_event(
    journal: Database, code: str, statement: str
) -> None:
    await happen(journal, "a", "b", "c")

    told = await caught_up(journal, recording(at_b(statement, 2), recovery=Recovery.skip()))

    assert fault_of_code(code) is Fault.DATABASE
    assert len(told.all("failed")) == 2
    assert told.names("skipped", "parked", "error") == []
    each_once(await effects(journal), a=1, b=1, c=1)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "statement"), OF_THE_BATCH.items(), ids=list(OF_THE_BATCH))
async def test_what_may_pass_the_next_time_is_tried_again(
    journal: Database, code: str, statement: str
) -> None:
    await happen(journal, "a", "b", "c")

    told = await caught_up(journal, recording(at_b(statement, 3), recovery=Recovery.skip()))

    assert fault_of_code(code) is Fault.BATCH
    # In halves, until the event stands alone; then after the others. A conflict is tried again as it is.
    assert told.names("failed", "skipped", "parked", "error") == []
    each_once(await effects(journal), a=1, b=1, c=1)


@pytest.mark.slow
@DELIVERIES
@pytest.mark.parametrize("recovery", [Recovery.skip(), NO_RETRY], ids=["skip", "park"])
async def test_a_statement_that_took_too_long_is_the_fault_of_no_event(
    journal: Database, delivery: Any, recovery: Recovery
) -> None:
    """Somebody holds what all handlers write."""
    await execute(journal, "CREATE TABLE counter (n integer); INSERT INTO counter VALUES (0)")
    sources = [f"s{number}" for number in range(8)]

    async def count(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        try:
            await session.execute("SET statement_timeout = '50ms'")
            await session.execute("UPDATE counter SET n = n + 1")
        finally:
            if not isinstance(getattr(session, "failure", None), DatabaseError):
                await session.execute("SET statement_timeout = 0")

    async with journal.session() as holder:
        await holder.begin()
        await holder.execute("UPDATE counter SET n = n")
        async with running(journal, recording(count, recovery=recovery, delivery=delivery)) as told:
            await happen(journal, *sources)
            await told.first("failed", 2)
            await holder.rollback()
            await until(journal, "SELECT n >= 8 FROM counter")
            await until(journal, "SELECT count(*) = 8 FROM projections.source_offsets")

    assert told.names("skipped", "parked") == []
    assert {source for source, _ in await effects(journal)} == set(sources)


@DELIVERIES
async def test_a_statement_that_somebody_cancels_is_the_fault_of_no_event(
    journal: Database, delivery: Any
) -> None:
    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.fetchval("SELECT pg_advisory_xact_lock(7)")

    async with journal.session() as holder:
        await holder.begin()
        await holder.fetchval("SELECT pg_advisory_xact_lock(7)")
        async with running(journal, recording(wait, recovery=Recovery.skip(), delivery=delivery)) as told:
            await happen(journal, "a")
            await until(journal, WAITS)
            assert await fetchval(journal, f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) AS w")
            await holder.rollback()
            await until(journal, "SELECT count(*) = 1 FROM projections.source_offsets")

    assert told.names("skipped", "parked", "error", "failed") == []
    assert ("a", 1) in await effects(journal)


@pytest.mark.slow
@DELIVERIES
async def test_a_lock_that_cannot_be_had_for_long_is_waited_for_after_all_others(
    journal: Database, delivery: Any
) -> None:
    """More often than a conflict is tried again."""
    left = 1 if delivery else 25
    await happen(journal, "a", "b")

    told = await caught_up(
        journal, recording(at_b(raised("55P03"), left), recovery=NO_RETRY, delivery=delivery)
    )

    assert told.names("failed", "parked", "error") == []
    assert {source for source, _ in await effects(journal)} == {"a", "b"}


async def test_a_batch_that_takes_too_long_passes_in_parts(journal: Database) -> None:
    table = Table("sums", key=("source_id",), increment=("total",))

    @projection("p", entity_type="plane", recovery=Recovery.skip())
    class Sums:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
            return table.upsert(source_id=envelope.source_id, total=1)

    await execute(journal, "CREATE TABLE sums (source_id text PRIMARY KEY, total integer DEFAULT 0)")
    await execute(
        journal,
        """
        CREATE FUNCTION too_many() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT count(*) FROM written) > 2 THEN
                RAISE EXCEPTION 'too long' USING ERRCODE = 'query_canceled';
            END IF;
            RETURN NULL;
        END $$
        """,
    )
    await execute(
        journal,
        "CREATE TRIGGER too_many AFTER INSERT ON sums REFERENCING NEW TABLE AS written "
        "FOR EACH STATEMENT EXECUTE FUNCTION too_many()",
    )
    await happen(journal, *(f"s{number}" for number in range(9)))

    told = await caught_up(journal, Sums)

    assert told.names("failed", "skipped") == []
    assert await fetchval(journal, "SELECT sum(total) FROM sums") == 9


@pytest.mark.slow
@DELIVERIES
async def test_a_list_that_takes_too_long_passes_in_parts(journal: Database, delivery: Any) -> None:
    @projection("p", entity_type="plane", recovery=Recovery.skip(), delivery=delivery)
    class Lists:
        @handles_group(Happened)
        async def happened(self, session: Session, events: Any) -> None:
            if len(events) > 2:
                await session.execute(raised("57014"))
            for _, envelope in events:
                await record(session, envelope)

    await happen(journal, *"abcdefghi")

    told = await caught_up(journal, Lists)

    assert told.names("failed", "skipped") == []
    each_once(await effects(journal), **dict.fromkeys("abcdefghi", 1))


def _around_the_session(how: str) -> Does:
    """Errors of 57014, twice, that do not come straight from the session."""
    left = 2

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal left
        if not left:
            return
        left -= 1
        match how:
            case "driver":
                await session.connection.execute(raised("57014"))
            case "wrapped":
                try:
                    await session.execute(raised("57014"))
                except DatabaseError as error:
                    raise LookupError("no such plane") from error
            case "swallowed":
                with suppress(DatabaseError):
                    await session.execute(raised("57014"))
            case _:
                try:
                    await session.execute(raised("57014"))
                except DatabaseError:
                    await session.execute("SELECT 1")  # refused: the transaction is spoiled

    return fail


@pytest.mark.slow
@pytest.mark.parametrize("how", ["driver", "wrapped", "swallowed", "gone on after"])
async def test_what_a_handler_makes_of_a_cancelled_statement_is_the_fault_of_no_event(
    journal: Database, how: str
) -> None:
    await happen(journal, "a")

    told = await caught_up(journal, recording(_around_the_session(how), recovery=Recovery.skip()))

    assert told.names("skipped") == []
    assert len(told.all("failed")) == 1
    each_once(await effects(journal), a=1)


async def test_a_retry_by_hand_that_is_cancelled_is_tried_again(journal: Database) -> None:
    await happen(journal, "b", "b", "b")
    await caught_up(journal, recording(at_b("SELECT 1 / 0", 2), recovery=NO_RETRY))
    assert await parked(journal) == ["b"]
    async with journal.session() as session:
        await offsets.ParkedSources(session).retry("p", "b")

    async with running(journal, recording(at_b(raised("57014"), 3), recovery=NO_RETRY)) as told:
        await until(journal, "SELECT count(*) = 0 FROM projections.parked_sources")

    assert told.names("parked", "failed") == ["parked"]  # again, until it is tried by itself
    each_once(await effects(journal), b=3)


async def test_a_range_that_stops_says_that_no_event_is_at_fault_and_what_to_do(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    left = 3

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal left
        if left:
            left -= 1
            await session.execute("INSERT INTO nowhere VALUES (1)")

    await happen(journal, "a", "b")

    await caught_up(journal, recording(fail), settings=settings(alike_failures=1))

    [line] = [r.getMessage() for r in caplog.records if getattr(r, "action", "") == "failed"]
    assert 'relation "nowhere" does not exist. No event is at fault, and none is set aside: ' in line
    assert "fix its statements, its tables or its grants" in line
