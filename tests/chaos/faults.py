"""Kinds of faults: how each is injected, and how it is known to have hit. What did not hit is not counted."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import asyncpg

from tests.chaos.cluster import FAKETIME, Cluster, can_mount
from tests.fixtures.frozen import Trap, cannot_trap

_TRIES = 60
_ACTIVE = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
AND state = 'active' AND application_name <> 'harm' AND NOT query LIKE 'LISTEN%' ORDER BY random() LIMIT 1
"""
_CANCEL = f"SELECT pid, pg_cancel_backend(pid) FROM ({_ACTIVE}) AS a"
_TERMINATE = """
SELECT pid, pg_terminate_backend(pid) FROM (
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
    AND application_name <> 'harm' ORDER BY state = 'idle', random() LIMIT 1
) AS a
"""
_BACKEND = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
AND application_name <> 'harm' ORDER BY state_change < clock_timestamp() - interval '0.5 s', random() LIMIT 1
"""
_FREEZES_IN = (
    "pgstat_report_activity", "pgstat_report_xact_timestamp", "StartTransactionCommand", "CommitTransactionCommand",
    "ProcArrayEndTransaction",
)  # fmt: skip
"""Where the clock has been read and not shown, or a commit is not visible yet, or is, and its session is still open."""
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"


class Target(Protocol):
    """What faults are injected into: see :class:`tests.chaos.chaos.Chaos`."""

    clusters: list[Cluster]
    journal: Cluster
    read_side: Cluster

    async def rescale(self, choices: random.Random) -> None:
        """Cut the ranges anew."""

    async def late(self, choices: random.Random, seconds: float) -> None:
        """Append in a transaction that stays open for so long."""

    async def append_to(self, connection: asyncpg.Connection[asyncpg.Record], choices: random.Random) -> None:
        """Append in the transaction of a connection."""


Inject: TypeAlias = Callable[[Target, random.Random], Awaitable[bool]]


class Kind(NamedTuple):
    """
    A kind of fault.

    Args:
        share: How many of 1,000 faults are of this kind.
        lane: Faults of one lane are injected one after the other.
        inject: Injects one; returns whether it hit. None: it is injected by those who start processes.
        needs: What is missing where it cannot be injected.
    """

    share: int
    lane: str
    inject: Inject | None = None
    needs: str | None = None


async def _cancel(target: Target, choices: random.Random) -> bool:
    """A statement was at work, and was cancelled."""
    return await _harm(target, choices, _CANCEL, "ERROR:  canceling statement due to user request")


async def _terminate(target: Target, choices: random.Random) -> bool:
    return await _harm(
        target, choices, _TERMINATE, "FATAL:  terminating connection due to administrator command"
    )


async def _harm(target: Target, choices: random.Random, sql: str, logged: str) -> bool:
    """Signal backends until one of them logs that it has been hit."""
    cluster = choices.choice(target.clusters)
    log = cluster.log()
    for _ in range(_TRIES):
        for row in await cluster.ask(sql):
            if await log.has(f"[{row['pid']}] {logged}", within=0.05):
                return True
        await asyncio.sleep(0.005)
    return False


async def _cut(target: Target, choices: random.Random) -> bool:
    """The network breaks a connection off."""
    return choices.choice(target.clusters).proxy.cut_one(choices.randrange(1000))


async def _lost_answer(target: Target, choices: random.Random) -> bool:
    """A COMMIT has no answer: mostly the server has committed, now and then it has never heard of it."""
    proxy = choices.choice(target.clusters).proxy
    proxy.lost.clear()
    proxy.cut_at_commit(choices.choices(["after", "before"], [3, 1])[0])
    try:
        await asyncio.wait_for(proxy.lost.wait(), 5)
    except TimeoutError:
        return False
    return True


async def _black_hole(target: Target, choices: random.Random) -> bool:
    """Nothing comes through, for up to three leases; then all that was sent does, or every connection is broken."""
    cluster = choices.choice(target.clusters)
    connections = cluster.proxy.connections
    cluster.proxy.stop_forwarding()
    await asyncio.sleep(choices.uniform(0.3, 3))
    if choices.random() < 0.5:
        cluster.proxy.go_on()
    else:
        await cluster.proxy.lead_to(cluster.server.dsn("chaos"))
    return connections > 0


async def _freeze(target: Target, choices: random.Random) -> bool:
    """A session's process loses its processor where its transaction begins or ends."""
    cluster = choices.choice(target.clusters)
    for row in await cluster.ask(_BACKEND):
        with Trap(row["pid"], choices.choice(_FREEZES_IN)) as trap:
            try:
                await asyncio.wait_for(trap.caught(), 1)
            except TimeoutError:
                return False
            await asyncio.sleep(choices.uniform(0.3, 2))
            return True
    return False


async def _rescale(target: Target, choices: random.Random) -> bool:
    await target.rescale(choices)
    return True


async def _late(target: Target, choices: random.Random) -> bool:
    await target.late(choices, choices.choice([0.3, 1.0, 3.0]))
    return True


async def _prepared(target: Target, choices: random.Random) -> bool:
    """A transaction is prepared, and committed by somebody else later; what others left behind ends now."""
    journal = target.journal
    await end_prepared(journal)
    name = str(uuid.UUID(int=choices.getrandbits(128)))
    connection = await asyncpg.connect(journal.dsn)
    try:
        await connection.execute("BEGIN")
        await target.append_to(connection, choices)
        await connection.execute(f"PREPARE TRANSACTION '{name}'")
    finally:
        connection.terminate()
    await asyncio.sleep(choices.uniform(0.1, 2))
    return name in await end_prepared(journal)


async def end_prepared(cluster: Cluster) -> set[str]:
    """Commit what was prepared; returns the names."""
    names = {row["gid"] for row in await cluster.ask(_PREPARED)}
    for name in names:
        await cluster.ask(f"COMMIT PREPARED '{name}'")
    return names


async def _crash(target: Target, choices: random.Random) -> bool:
    await choices.choice(target.clusters).crash(choices.uniform(0, 1.5))
    return True


async def _fail_over(target: Target, choices: random.Random) -> bool:
    await target.read_side.fail_over(choices.uniform(0.1, 1))
    return True


async def _restore(target: Target, choices: random.Random) -> bool:
    await target.read_side.restore(choices.uniform(0.1, 1))
    return True


async def _disk_full(target: Target, choices: random.Random) -> bool:
    """The table of the effects cannot grow."""
    log = target.read_side.log()
    async with target.read_side.full_disk():
        hit = await log.has("No space left on device", within=15)
        await asyncio.sleep(choices.uniform(0, 1))
    return hit


async def _clock(target: Target, choices: random.Random) -> bool:
    """The clock of the journal's server steps, forwards or back."""
    step = choices.choice([0.005, 0.015, 0.1, 1.0, 5.0]) * choices.choice([-1, 1])
    difference = "SELECT extract(EPOCH FROM clock_timestamp())::float8 AS now"
    [before] = await target.journal.ask(difference)
    started = asyncio.get_running_loop().time()
    target.journal.set_clock(step)
    [after] = await target.journal.ask(difference)
    passed = asyncio.get_running_loop().time() - started
    await asyncio.sleep(choices.uniform(0.2, 1))
    return abs(after["now"] - before["now"]) > passed or after["now"] < before["now"]


KINDS: Mapping[str, Kind] = {
    "cancel": Kind(330, "statements", _cancel),
    "terminate": Kind(180, "connections", _terminate),
    "cut": Kind(150, "connections", _cut),
    "lost answer": Kind(150, "commits", _lost_answer),
    "kill": Kind(50, "processes"),
    "stop": Kind(40, "processes"),
    "freeze": Kind(30, "freezes", _freeze, cannot_trap()),
    "rescale": Kind(30, "ranges", _rescale),
    "late commit": Kind(30, "transactions", _late),
    "prepared": Kind(10, "transactions", _prepared),
    "black hole": Kind(10, "servers", _black_hole),
    "crash": Kind(8, "servers", _crash),
    "fail-over": Kind(4, "servers", _fail_over),
    "restore": Kind(3, "servers", _restore),
    "disk full": Kind(3, "servers", _disk_full, None if can_mount() else "it needs root, to mount a small disk"),
    "clock": Kind(2, "servers", _clock, None if FAKETIME else "it needs libfaketime"),
}  # fmt: skip


class Plan:
    """
    Faults that are still to hit, and those that have.

    Args:
        quotas: How many of each kind.
    """

    def __init__(self, quotas: Mapping[str, int]) -> None:
        self.left = Counter(quotas)
        self.hits: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()

    @classmethod
    def of(cls, number: int, kinds: Iterable[str]) -> Plan:
        """So many faults of these kinds, each by its share, and at least one of each if there are enough."""
        shares = {kind: KINDS[kind].share for kind in kinds}
        whole = sum(shares.values())
        quotas = {kind: max(1, number * share // whole) for kind, share in shares.items()}
        most = max(shares, key=lambda kind: quotas[kind])
        quotas[most] = max(1, quotas[most] + number - sum(quotas.values()))
        return cls(quotas)

    @property
    def done(self) -> bool:
        """Whether all have hit."""
        return all(left <= 0 for left in self.left.values())

    def take(self, kinds: Iterable[str], choices: random.Random) -> str | None:
        """One of these kinds that is still to hit, by how many are left of each; None if none is."""
        left = {kind: self.left[kind] for kind in kinds if self.left[kind] > 0}
        if not left:
            return None
        return choices.choices(list(left), list(left.values()))[0]

    def told(self, kind: str, *, hit: bool) -> None:
        """One of this kind was injected."""
        (self.hits if hit else self.missed)[kind] += 1
        self.left[kind] -= hit
