"""A real application of Akka Persistence R2DBC, and a real projection of Akka's that ours takes over from."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from journal import ConnectionSettings, Database, EventEnvelope, Session, connect, event_type
from journal.foreign import pekko_payloads, pekko_r2dbc, table_log
from offsets import Elsewhere
from projections import handles, projection
from tests.fixtures.akka import TABLES
from tests.fixtures.foreign import Follower, OnlyForward, stored_keys
from tests.fixtures.java import JavaProgram, ended, needs_java, r2dbc_url
from tests.fixtures.locks import OWN_LOCKS
from tests.fixtures.moving import take_over
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    effects,
    execute,
    record,
    running,
    until,
    until_effects,
)

FOREIGN = ConnectionSettings(foreign_journal=True)
SEEN = "CREATE TABLE seen (LIKE effects INCLUDING ALL)"
HANDLED = "SELECT source_id, seq_nr FROM seen ORDER BY n"
# What the application's own transactions run into: some commit late, and some fail.
LATE = """
CREATE FUNCTION commit_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF random() < 0.05 THEN PERFORM pg_sleep(random() * 0.5); END IF;
    IF random() < 0.03 THEN RAISE EXCEPTION 'this transaction is rolled back'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER late AFTER INSERT ON event_journal FOR EACH ROW EXECUTE FUNCTION commit_late();
"""


@event_type("interop.Events$Paid")
class Paid(BaseModel):
    amount: int
    note: str


@projection("accounts", entity_type="account")
class Accounts:
    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        assert (event.amount, event.note) == (envelope.seq_nr, f"note {envelope.seq_nr}")
        assert envelope.tags == ["paid"]
        await record(session, envelope)


@projection("all", entity_type=("account", "cart"))
class All:
    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        await session.execute(
            "INSERT INTO seen (source_id, seq_nr) VALUES ($1, $2)", envelope.source_id, envelope.seq_nr
        )


@pytest.fixture(scope="module")
def akka(tmp_path_factory: pytest.TempPathFactory) -> JavaProgram:
    return JavaProgram("akka", tmp_path_factory.mktemp("akka"))


async def counts(database: Database, sql: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    async with database.session() as session:
        for row in await session.fetch(sql):
            found.setdefault(row["source_id"], []).append(row["seq_nr"])
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
@needs_java
async def test_what_akka_commits_late_is_found_and_what_it_rolls_back_is_not_there(
    dsn: str, akka: JavaProgram
) -> None:
    async with connect(dsn) as read_side, connect(dsn, FOREIGN) as database:
        await execute(read_side, f"{TABLES}; {EFFECTS}; {SEEN}; {LATE}")
        log = await table_log(database, pekko_r2dbc(), name="bank", decode=pekko_payloads())
        writers_ended, followers = asyncio.Event(), [Follower(log), Follower(log, OnlyForward)]
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follower.run(writers_ended)) for follower in followers]
            async with (
                akka.running("Writer", r2dbc_url(dsn), 40, 5) as application,
                running(read_side, All, journal=log, ranges=2),
            ):
                await asyncio.wait_for(enough(read_side, 1000, "seen"), 240)
                await ended(application)
            writers_ended.set()
            await asyncio.gather(*following)
        await caught_up(read_side, All, journal=log)
        stored = await stored_keys(database, "event_journal WHERE NOT deleted", "persistence_id", "seq_nr")
        handled = await counts(read_side, HANDLED)
    right, wrong = (len(stored - set(follower.handled)) for follower in followers)
    print(f"{len(stored)} stored, lost {right}; going forward {wrong}")
    assert right == 0 < wrong
    for source in {source for source, _ in stored if source.startswith("account|")}:
        assert handled[source] == sorted(n for name, n in stored if name == source)


@pytest.mark.slow
@pytest.mark.timeout(400)
@needs_java
@pytest.mark.parametrize("kind", ["exactly-once", "grouped"])
async def test_a_projection_of_akka_that_was_killed_goes_on_as_ours(
    dsn: str, akka: JavaProgram, kind: str
) -> None:
    """The application goes on persisting, starting entities again, and deleting events of carts."""
    async with connect(dsn) as read_side, connect(dsn, FOREIGN) as database:
        await execute(read_side, f"{TABLES}; {EFFECTS}; {SEEN}")
        log = await table_log(database, pekko_r2dbc(), name="bank", decode=pekko_payloads())
        async with (
            akka.running("Writer", r2dbc_url(dsn), 40, 5) as application,
            running(read_side, All, journal=log, ranges=2),
        ):
            async with akka.running("Projecting", r2dbc_url(dsn), kind, 2, "record", 20) as theirs:
                await asyncio.wait_for(enough(read_side, 300), 240)
                theirs.kill()
                await theirs.wait()
            await until(
                read_side,
                f"SELECT count(*) = 0 FROM {OWN_LOCKS} WHERE mode = 'RowExclusiveLock' "
                "AND relation = 'akka_projection_timestamp_offset_store'::regclass",
            )
            before = len(await effects(read_side))
            await take_over(read_side, log, Accounts, Elsewhere(framework="akka", name="accounts"))
            async with running(read_side, Accounts, journal=log):
                await until_effects(read_side, before + 500)
                await ended(application)
        await caught_up(read_side, Accounts, All, journal=log)
        last = await counts(
            read_side,
            "SELECT persistence_id AS source_id, max(seq_nr) AS seq_nr FROM event_journal GROUP BY 1",
        )
        deleted = await counts(
            read_side,
            "SELECT persistence_id AS source_id, max(seq_nr) AS seq_nr FROM event_journal WHERE deleted GROUP BY 1",
        )
        handled = await counts(read_side, "SELECT source_id, seq_nr FROM effects ORDER BY n")
        seen = await counts(read_side, HANDLED)
    in_all = {kind: sum(map(len, found.values())) for kind, found in (("handled", handled), ("seen", seen))}
    print(f"{kind}: {before} handled by Akka; {in_all}")
    expected = {name: list(range(1, numbers[0] + 1)) for name, numbers in last.items()}
    assert handled == {name: numbers for name, numbers in expected.items() if name.startswith("account|")}
    for name, numbers in expected.items():
        # What a cart deletes right after it was written may never have been seen.
        gone = deleted.get(name, [0])[0]
        assert [n for n in seen[name] if n > gone] == [n for n in numbers if n > gone]
        assert seen[name] == sorted(set(seen[name]))
    assert any(deleted.values())


async def enough(database: Database, number: int, table: str = "effects") -> None:
    """Wait for the virtual machine, which takes its time."""
    async with database.session() as session:
        while await session.fetchval(f"SELECT count(*) < $1 FROM {table}", number):
            await asyncio.sleep(0.05)
