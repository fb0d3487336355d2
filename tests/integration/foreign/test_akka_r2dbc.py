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
from tests.fixtures.java import JavaProgram, needs_java, r2dbc_url
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
SECONDS = 20


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
@pytest.mark.parametrize("kind", ["exactly-once", "grouped"])
async def test_a_projection_of_akka_that_was_killed_goes_on_as_ours(
    dsn: str, akka: JavaProgram, kind: str
) -> None:
    """The application goes on persisting, starting entities again, and deleting events of carts."""
    async with connect(dsn) as read_side, connect(dsn, FOREIGN) as database:
        await execute(read_side, TABLES + EFFECTS + "; CREATE TABLE seen (LIKE effects INCLUDING ALL)")
        log = await table_log(database, pekko_r2dbc(), name="bank", decode=pekko_payloads())
        async with (
            akka.running("Writer", r2dbc_url(dsn), SECONDS, 40, 5) as application,
            running(read_side, All, journal=log, ranges=2),
        ):
            async with akka.running("Projecting", r2dbc_url(dsn), kind, 2, "record", 20) as theirs:
                await asyncio.wait_for(enough(read_side, 300), 120)
                theirs.kill()
                await theirs.wait()
            await until(
                read_side,
                "SELECT count(*) = 0 FROM pg_locks WHERE mode = 'RowExclusiveLock' "
                "AND relation = 'akka_projection_timestamp_offset_store'::regclass",
            )
            before = len(await effects(read_side))
            await take_over(read_side, log, Accounts, Elsewhere(framework="akka", name="accounts"))
            async with running(read_side, Accounts, journal=log):
                await until_effects(read_side, before + 1)
                assert await application.wait() == 0
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
        seen = await counts(read_side, "SELECT source_id, seq_nr FROM seen ORDER BY n")
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


async def enough(database: Database, number: int) -> None:
    """Wait for the virtual machine, which takes its time."""
    async with database.session() as session:
        while await session.fetchval("SELECT count(*) < $1 FROM effects", number):
            await asyncio.sleep(0.05)
