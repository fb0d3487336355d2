"""Projections under chaos: on our own journal in one database and in two, and on a table of another system."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from journal import Database, Row
from projections.auditing import Audit
from tests.chaos.chaos import SOURCES, Chaos, audit
from tests.chaos.worker import EFFECTS, FOREIGN

_EVENTS = "SELECT source_id, seq_nr, event_id::text FROM projections.events"
_TIMES = """
SELECT at, pg_xact_commit_timestamp(xmin) AS committed_at, ctid::text FROM log WHERE source = $1 AND number = $2
"""
_HANDLED = "SELECT source_id, seq_nr, event_id::text FROM effects ORDER BY n"


async def rows(database: Database, sql: str, *values: Any) -> list[Row]:
    async with database.session() as session:
        return list(await session.fetch(sql, *values))


def check_owners(effects: Iterable[Row]) -> None:
    """
    For each slice the epochs never go down, and each of them has one worker.

    A commit of an epoch ends before the next epoch can be claimed, and everything that the next holder does comes
    after that: so it holds in the order of the commits, and also in that of the effects' numbers.
    """
    newest: dict[tuple[int, int], int] = {}
    holders: dict[tuple[tuple[int, int], int], str] = {}
    for effect in effects:
        number, epoch = (effect["journal"], effect["slice"]), effect["epoch"]
        assert epoch >= newest.get(number, 0), f"slice {number}: epoch {epoch} after {newest[number]}"
        newest[number] = epoch
        assert holders.setdefault((number, epoch), effect["worker"]) == effect["worker"]


class TogetherChaos(Chaos):
    """Journal and read model in one database, which may go back in time as a whole."""

    kinds = (*Chaos.kinds, "fail-over", "restore")
    tablespace = ""

    async def prepare(self) -> None:
        """The read model."""
        await rows(self.read_side.database, EFFECTS + self.tablespace)

    async def check(self) -> dict[str, Audit]:
        """Every event has its effect once, in order, and no slice had two owners."""
        read_side = self.read_side.database
        effects = "SELECT journal, slice, worker, epoch FROM effects ORDER BY"
        check_owners(await rows(read_side, f"{effects} n"))
        check_owners(await rows(read_side, f"{effects} pg_xact_commit_timestamp(xid::xid), n"))
        assert not await rows(read_side, "SELECT FROM projections.parked_sources")
        return await audit(self.journal.database, self.events, read_side, _HANDLED)

    events = _EVENTS

    def goes_on_alone(self, *options: str) -> bool:
        return True

    async def _left_to_handle(self) -> int:
        count = f"SELECT count(*) AS events FROM ({self.events}) AS e"
        committed = [await rows(one.database, count) for one in self.clusters[: self.journals]]
        return sum(one["events"] for (one,) in committed) - await self._effects()


class ApartChaos(TogetherChaos):
    """The journal on a server of its own, whose clock steps; the one of the read model goes back in time."""

    kinds = (*TogetherChaos.kinds, "clock")


class BothChaos(ApartChaos):
    """A journal in either database, and one read model of both."""

    kinds = TogetherChaos.kinds
    journals = 2

    async def check(self) -> dict[str, Audit]:
        """Each journal by itself."""
        await super().check()
        found = {}
        for number, cluster in enumerate(self.clusters):
            handled = _HANDLED.replace("ORDER", f"WHERE journal = {number} ORDER")
            found |= await audit(
                cluster.database, _EVENTS, self.read_side.database, handled, name=f"journal {number}"
            )
        return found


class ForeignChaos(TogetherChaos):
    """The journal is a table of another system on another server; the disk of the read model is full now and then."""

    kinds = (*Chaos.kinds, "disk full")
    events = "SELECT source, number, NULL::text FROM log"

    async def prepare(self) -> None:
        """The other system's table."""
        if "disk full" in self.plan.left:
            self.tablespace = " TABLESPACE small"
        await super().prepare()
        # A page is full soon, and the table has to grow.
        await rows(self.read_side.database, f"ALTER TABLE effects ADD wide text DEFAULT '{'x' * 1500}'")
        for statement in FOREIGN:
            await rows(self.journal.database, statement)
        async with self.journal.database.transaction() as first:
            await first.execute("SELECT")
            async with self.journal.database.transaction() as second:
                await self._insert(second, SOURCES)
            await self._insert(
                first, SOURCES
            )  # each source's second event has an earlier time than its first

    def _elsewhere(self) -> list[str]:
        return [f"foreign={self.journal.dsn}"]

    async def check(self) -> dict[str, Audit]:
        """As in our own journal; says when a transaction that was lost began and ended."""
        found = await super().check()
        for example in found["projection"].examples:
            key = example.source_id, example.seq_nr
            print(example, *await rows(self.journal.database, _TIMES, *key), file=sys.stderr)
        return found

    async def append_to(self, connection: Any, choices: random.Random, journal: int = 0) -> None:
        """As an application does that numbers the events of a source by the last one: who is later fails."""
        await self._insert(connection, [event.source_id for event in self._events(choices)])

    async def _insert(self, connection: Any, sources: Sequence[str]) -> None:
        for source_id in sources:
            await connection.execute(
                "INSERT INTO log (source, number) SELECT $1, coalesce(max(number), 0) + 1 FROM log WHERE source = $1",
                source_id,
            )
