"""Where the journal of a run is, what applications append there, and what a worker reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from journal import Event as NewEvent
from journal import Log, LogToOpen, OwnedSession, append
from projections import Inline
from tests.simulation import foreign
from tests.simulation.application import ENTITY_TYPE, Happened
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.history import Event
from tests.simulation.loop import SimulatedLoop
from tests.simulation.postgres.server import SYSTEM, Server
from tests.simulation.postgres.storage import Row, Snapshot, Transaction

_NOT_INLINE = 0.3
"""The share of appends that leave handling to workers."""
Connect = Callable[[Server, int], SimulatedDatabase]
"""Makes a pool of a process to a server, of a number of connections."""


class Together:
    """
    The journal is in the database of the read models.

    Args:
        loop: Runs it all.
        seed: What servers leave open is drawn from it.
        projection: What is run.
    """

    table = "events"
    """That events are in."""

    def __init__(self, loop: SimulatedLoop, seed: int, projection: type[Any]) -> None:
        self._projection = projection
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


ARRANGEMENTS: dict[str, type[Together]] = {
    "together": Together, "inline": InlineToo, "apart": Apart, "foreign": Foreign,
}  # fmt: skip


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
