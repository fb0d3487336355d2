"""Whatever one event does, all other sources go on, and what is passed over is told: by examples that are drawn."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from journal import ConnectionSettings, Database, DatabaseUnavailable, EventEnvelope, Session, append, connect
from projections import (
    AtLeastOnce,
    Changes,
    Event,
    Recovery,
    Table,
    handles,
    handles_group,
    projection,
    reacts,
)
from tests.fixtures.poison import ERRORS, drawn, raising
from tests.fixtures.projections import EFFECTS, Told, caught_up, execute, settings

INSERT = "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)"
SUMS = Table("sums", key=("source_id",), increment=("total",))
KINDS = ["execute", "queue", "executemany", "group", "table", "reaction"]
DRIVERS = ["asyncpg", "psycopg"]


class Happened(BaseModel):
    n: int = 0


class Senseless:
    """A value that compares with nothing, and has no representation."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]
    __repr__ = __str__ = __lt__ = __add__ = __radd__ = __eq__  # type: ignore[assignment]


VALUES: Sequence[Any] = (2**40, 10**30, "x", float("nan"), object(), Senseless(), b"x", [1])


@dataclass
class Run:
    """What is drawn: which events there are, which of them are poison, and how they are handled."""

    number: int
    kind: str
    recovery: Recovery
    delivery: AtLeastOnce | None
    batch_size: int
    sources: list[str]
    poison: dict[tuple[str, int], tuple[str, Any]]
    seen: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def drawn(cls, draw: random.Random, number: int, other: Database) -> Run:
        kind = draw.choice(KINDS)
        names = [f"{number}-{letter}" for letter in "abcdefgh"]
        sources = draw.choices(names, k=24)
        bad = draw.sample(sorted(set(sources)), draw.randint(1, 3))
        poison = {}
        for source in bad:
            if kind == "table" and draw.random() < 0.5:
                value = draw.choice(VALUES)
                what: tuple[str, Any] = f"returns a {type(value).__name__}", value
            elif kind == "table":
                name = draw.choice(list(ERRORS))
                what = f"raises {name}", raising(ERRORS[name])
            else:
                what = drawn(draw, other)
            poison[source, draw.randint(1, sources.count(source))] = what
        delivery = None if kind in {"table", "reaction", "queue"} or draw.random() < 0.6 else AtLeastOnce()
        recovery = draw.choice(
            [Recovery.retry_and_park([]), Recovery.skip(), Recovery.retry_and_park([0.001])]
        )
        return cls(number, kind, recovery, delivery, draw.choice([1, 3, 1000]), sources, poison)

    def __str__(self) -> str:
        poison = ", ".join(f"{source} {seq_nr} {name}" for (source, seq_nr), (name, _) in self.poison.items())
        how = f"{self.kind}, {self.recovery}, {self.delivery}, batches of {self.batch_size}"
        return f"run {self.number}: {how}: {poison}"

    async def meet(self, session: Session, envelope: EventEnvelope) -> None:
        """Do what goes wrong at an event, if anything."""
        found = self.poison.get((envelope.source_id, envelope.seq_nr))
        if found is not None:
            await found[1](session)

    def definition(self) -> type[Any]:
        """The projection."""
        return projection(
            f"p{self.number}", entity_type=f"t{self.number}", recovery=self.recovery, delivery=self.delivery,
            **({} if self.kind == "group" else {"batch_size": self.batch_size}),
        )(MADE[self.kind](self))  # fmt: skip


def per_event(run: Run) -> type[Any]:
    class PerEvent:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            row = envelope.source_id, envelope.seq_nr
            await run.meet(session, envelope)
            match run.kind:
                case "queue":
                    await session.queue(INSERT, *row)
                case "executemany":
                    await session.executemany(INSERT, [row])
                case _:
                    await session.execute(INSERT, *row)

    return PerEvent


def grouped(run: Run) -> type[Any]:
    class Grouped:
        @handles_group(Happened)
        async def happened(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
            for _, envelope in events:
                await run.meet(session, envelope)
                await session.execute(INSERT, envelope.source_id, envelope.seq_nr)

    return Grouped


def reacting(run: Run) -> type[Any]:
    class Reacting:
        @reacts(Happened)
        async def react(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await run.meet(session, envelope)

        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await session.execute(INSERT, envelope.source_id, envelope.seq_nr)

    return Reacting


def tabled(run: Run) -> type[Any]:
    class Tabled:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
            _, poison = run.poison.get((envelope.source_id, envelope.seq_nr), ("", 1))
            if callable(poison):
                poison(None).send(None)
            return SUMS.upsert(source_id=envelope.source_id, total=poison)

    return Tabled


MADE = {
    "execute": per_event,
    "queue": per_event,
    "executemany": per_event,
    "group": grouped,
    "reaction": reacting,
    "table": tabled,
}


@pytest.fixture(params=DRIVERS)
async def journal(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        await execute(
            pool, "CREATE TABLE sums (source_id text PRIMARY KEY, total integer NOT NULL DEFAULT 0)"
        )
        yield pool


@pytest.fixture(params=DRIVERS)
async def other(request: pytest.FixtureRequest, empty_dsn: str) -> AsyncIterator[Database]:
    """Another database, which handlers use besides."""
    async with connect(empty_dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def check(journal: Database, run: Run) -> None:
    """Have the events handled: the range never stops, and each is handled, told to be passed over, or behind one."""
    async with journal.transaction() as session:
        await append(session, [Event(source, Happened(), f"t{run.number}") for source in run.sources])
    told = Told()

    await caught_up(journal, run.definition(), observer=told, settings=settings())

    # An internal error ends its connection, and the range goes on with another one.
    assert [one for one in told.all("failed") if not isinstance(one[-1], DatabaseUnavailable)] == []
    assert told.all("failed") == [] or any("XX" in what for what, _ in run.poison.values())
    passed_over = {
        kind: {(e.source_id, e.seq_nr) for _, e, _ in told.all(kind)} for kind in ("parked", "skipped")
    }
    assert passed_over["parked"] | passed_over["skipped"] == set(run.poison)
    expected = set()
    for source in set(run.sources):
        for seq_nr in range(1, run.sources.count(source) + 1):
            if (source, seq_nr) in passed_over["parked"]:
                break
            if (source, seq_nr) not in passed_over["skipped"]:
                expected.add((source, seq_nr))
    async with journal.session() as session:
        if run.kind == "table":
            rows = await session.fetch("SELECT * FROM sums WHERE source_id LIKE $1", f"{run.number}-%")
            sums: defaultdict[str, int] = defaultdict(int)
            for source, _ in expected:
                sums[source] += 1
            assert {row["source_id"]: row["total"] for row in rows} == sums
            return
        rows = await session.fetch(
            "SELECT source_id, seq_nr FROM effects WHERE source_id LIKE $1", f"{run.number}-%"
        )
    effects = [tuple(row.values()) for row in rows]
    assert set(effects) == expected
    assert run.delivery is not None or len(effects) == len(expected)


async def check_all(journal: Database, other: Database, seed: int, runs: int) -> None:
    draw = random.Random(seed)
    for number in range(runs):
        run = Run.drawn(draw, number, other)
        try:
            async with asyncio.timeout(60):
                await check(journal, run)
        except BaseException as error:
            error.add_note(f"seed {seed}, {run}")
            raise


@pytest.mark.daily(2)
async def test_all_other_sources_go_on(journal: Database, other: Database) -> None:
    await check_all(journal, other, 7, 8)


@pytest.mark.slow  # the same of many that are drawn anew
async def test_all_other_sources_go_on_whatever_is_drawn(journal: Database, other: Database) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")

    await check_all(journal, other, seed, 150)
