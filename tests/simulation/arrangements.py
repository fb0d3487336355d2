"""Where the journal of a run is, what applications append there, and what a worker reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from random import Random
from typing import Any

import offsets
from journal import Database, Log, LogToOpen, OwnedSession, append
from journal import Event as NewEvent
from projections import Inline, RunSettings, run
from tests.simulation import foreign
from tests.simulation.application import ENTITY_TYPE, NAME, Happened
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.history import Event, problems
from tests.simulation.loop import SimulatedLoop
from tests.simulation.plan import Plan
from tests.simulation.postgres.server import SYSTEM, Server
from tests.simulation.postgres.sharing import SLICES
from tests.simulation.postgres.storage import Row, Snapshot, Transaction

LEASE = 1.2
"""Seconds that a worker holds ranges without a heartbeat."""
_NOT_INLINE = 0.3
"""The share of appends that leave handling to workers."""
Part = Callable[[asyncio.Event, bool], Awaitable[None]]
"""What a process does until an event is set; whether it takes over what others hold."""
Connect = Callable[[Server, int], SimulatedDatabase]
"""Makes a pool of a process to a server, of a number of connections."""


class Together:
    """
    The journal is in the database of the read models.

    Args:
        loop: Runs it all.
        plan: Of the run; what servers leave open is drawn from its seed.
        projection: What is run.
        is_healed: Whether nothing is poison any more.
    """

    table = "events"
    """That events are in."""
    name = NAME
    """Of the projection that is run."""
    first_place = 0
    """In the order of commits of the server, that before which nothing happens."""
    watched = ""
    """The step after which :meth:`passed_over` is asked."""
    lease = LEASE
    """Seconds of the longest lease: once nothing is in the way, two of them never pass without progress."""
    settles = 40.0
    """Seconds after the last fault in which everything must be handled, whatever is still in the way."""

    def __init__(
        self, loop: SimulatedLoop, plan: Plan, projection: type[Any], is_healed: Callable[[], bool]
    ) -> None:
        seed = plan.seed
        self._plan = plan
        self._projection = projection
        self._is_healed = is_healed
        self._chance = Random(f"arrangement {seed}")
        self.read_side = Server(loop, Random(f"server {seed}"))
        """Where offsets and read models are."""
        self.journal = self._journal(loop, seed)
        """Where events are."""
        self.servers = list(dict.fromkeys([self.read_side, self.journal]))

    def _journal(self, loop: SimulatedLoop, seed: int) -> Server:
        return self.read_side

    def read_by(self, connect: Connect) -> Sequence[Log | LogToOpen] | None:
        """What a worker is to read, if not the journal of its own database."""
        return None

    async def append(self, session: OwnedSession, sources: Sequence[str]) -> list[Event]:
        """Append an event of each source, in their order."""
        appended = await append(session, [NewEvent(one, Happened(), ENTITY_TYPE) for one in sources])
        return [Event(one.source_id, one.seq_nr, one.event_id) for one in appended]

    async def set_up(self) -> None:
        """Have there what is there before anything happens."""

    def parts(self, number: int, database: Database, connect: Connect, settings: RunSettings) -> list[Part]:
        """
        What the process in a place does, each part alongside the others.

        Args:
            number: Of the place.
            database: Where read models are.
            connect: Makes another pool.
            settings: Of what is run.
        """
        journal = self.read_by(connect)

        async def work(stop: asyncio.Event, take_over: bool) -> None:
            await run(
                database, self._projection, ranges=self._plan.ranges, settings=settings, stop=stop,
                take_over=take_over, journal=journal,
            )  # fmt: skip

        return [work]

    def follow(self, watch: Callable[..., Any], tell: Callable[[str], None]) -> None:
        """Have steps that no database sees watched and told, as those of a link."""

    async def operate(self, database: Database) -> None:
        """Do what somebody has to do in the end, again and again."""

    async def rescale(self, session: OwnedSession, amount: float) -> None:
        """Cut ranges again: into which ones, 0 to 1 says."""
        await offsets.rescale(session, self.name, 1 + round(5 * amount))

    def problems(self, lost: Collection[Event]) -> list[str]:
        """What is wrong with what was handled; ``lost`` was committed, and is gone."""
        apart = self.journal is not self.read_side
        return problems(self.committed(), handled(self.read_side), lost if apart else frozenset())

    def goes_on_without(self, places: Collection[int]) -> bool:
        """Whether the processes in these places can do all that is to be done, without others."""
        return bool(places)

    def progress(self) -> Hashable:
        """What is another as soon as more is handled."""
        return len([*rows(self.read_side, "handled")]), len(self.waiting())

    def not_due(self) -> bool:
        """Whether something waits for a time of its own, before which nobody is to do it."""
        return False

    def passed_over(self) -> list[str]:
        """What has gone wrong for good already, such as what somebody has said to be handled, and is not."""
        return []

    def untiled(self) -> list[tuple[int, int]]:
        """Ranges that are not all slices, each once."""
        return untiled(rows(self.read_side, "projection_ranges"))

    def unheld(self, table: str = "projection_ranges") -> list[int]:
        """Where the ranges begin that nobody who is alive holds."""
        now = self.read_side.clock()
        alive = {row["owner"] for _, row in rows(self.read_side, "workers") if row["lease_until"] > now}
        return [row["min_slice"] for _, row in rows(self.read_side, table) if row["owner"] not in alive]

    def waiting(self) -> list[str]:
        """Sources that wait for a decision, or are handled after one."""
        return [row["source_id"] for _, row in rows(self.read_side, "parked_sources")]

    def committed(self) -> list[Event]:
        """What is in the log."""
        return [
            Event(row["source_id"], row["seq_nr"], row["event_id"])
            for _, row in rows(self.journal, self.table)
        ]


class InlineToo(Together):
    """As together; applications have most events handled in the transaction that appends them, where they may be."""

    async def append(self, session: OwnedSession, sources: Sequence[str]) -> list[Event]:
        if not sources or self._chance.random() < _NOT_INLINE:
            return await super().append(session, sources)
        new = [NewEvent(one, Happened(), ENTITY_TYPE) for one in sources]
        appended = await Inline(self._projection).append(session, new)
        return [Event(one.source_id, one.seq_nr, one.event_id) for one in appended]


class Apart(Together):
    """The journal is on a server of its own."""

    def _journal(self, loop: SimulatedLoop, seed: int) -> Server:
        return Server(loop, Random(f"journal {seed}"), system=SYSTEM + 1)

    def read_by(self, connect: Connect) -> Sequence[Log | LogToOpen] | None:
        return [Log(connect(self.journal, 3), "shop")]


class Foreign(Apart):
    """The journal is a table of another system, whose rows are stamped with the start of their transaction."""

    table = "outbox"

    def read_by(self, connect: Connect) -> Sequence[Log | LogToOpen] | None:
        return [foreign.log(connect(self.journal, 3))]

    async def append(self, session: OwnedSession, sources: Sequence[str]) -> list[Event]:
        return [await foreign.insert(session, one) for one in sources]


def rows(server: Server, table: str) -> Any:
    """Keys and rows that are committed."""
    return server.tables[table].rows(Snapshot(server.place, Transaction("0/0")))


def handled(server: Server) -> list[Event]:
    """What is in the read model, in the order in which it came there."""
    table = server.tables["handled"]
    placed: list[tuple[int, Any, Row]] = sorted(
        (table.newest(key).made_by.place, key, row)  # type: ignore[union-attr]
        for key, row in rows(server, "handled")
    )
    return [Event(row["source_id"], row["seq_nr"], row["event_id"]) for _, _, row in placed]


def untiled(ranges: Iterable[tuple[Any, Row]]) -> list[tuple[int, int]]:
    """The ranges, where they are not all slices, each once."""
    found = sorted((row["min_slice"], row["max_slice"]) for _, row in ranges)
    tiled = [first for first, _ in found] == [0, *(last + 1 for _, last in found[:-1])]
    return [] if tiled and found[-1][1] == SLICES - 1 else found
