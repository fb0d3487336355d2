"""
Whatever one event does, all other sources go on, and what is passed over is told: by examples that are drawn.

The slow test prints its seed; with ``POISON_SEED`` it draws the same ones again.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import pytest
from pydantic import BaseModel

from journal import (
    ConnectionSettings,
    Database,
    DatabaseError,
    DatabaseUnavailable,
    EventEnvelope,
    Session,
    append,
    connect,
)
from projections import (
    AtLeastOnce,
    Changes,
    Event,
    Inline,
    ProjectionFailed,
    RawJson,
    Recovery,
    Table,
    events,
    handles,
    handles_group,
    projection,
    reacts,
    read_model,
)
from projections.failing import GiveUp
from projections.subscriptions import Consumer, MatchedEvent
from projections.webhooks import FanOut
from projections.webhooks.messages import Message
from spark_projections.errors import RebuildError
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.poison import ERRORS, drawn, raising
from tests.fixtures.projections import EFFECTS, Told, caught_up, execute, settings, until
from tests.fixtures.rebuilds import fence_passes
from tests.fixtures.subscriptions import consuming, match_all, quick
from tests.fixtures.webhooks import endpoint

INSERT = "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)"
SUMS = "CREATE TABLE {} (source_id text PRIMARY KEY, total integer NOT NULL DEFAULT 0)"
LIVE = ["execute", "queue", "executemany", "group", "table", "reaction", "statement", "fan-out"]
STYLES = {"inline": ["execute", "table", "statement"], "rebuild": ["execute", "table"]}
"""Of what is handled otherwise than by workers: the kinds of its handlers."""
WAYS = ["live", *STYLES, "consumer"]
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
PAYLOADS = ('{"n": -1}', '{"n": "x"}', '{"n": 1e30}', '{"n": 1.5}', '{"n": [1]}', '{"n": null}', "[]", "1")
"""What a read model in SQL cannot handle: it divides by the number plus one, which its model has as a bigint."""
MESSAGES: Sequence[Any] = (
    17,
    Senseless(),
    Message("t", None),  # type: ignore[arg-type]
    Message("t", "a.b", metadata={"k": Senseless()}),  # type: ignore[dict-item]
    Message("t", "a.b", data="\0"),
    Message("t", "a.b", order_key="\ud800"),
    Message("t", "a.b", not_before="soon"),  # type: ignore[arg-type]
)
"""What a fan-out cannot send."""


@dataclass
class Run:
    """What is drawn: which events there are, which of them are poison, and how they are handled."""

    number: int
    way: str
    kind: str
    recovery: Recovery
    delivery: AtLeastOnce | None
    batch_size: int
    sources: list[str]
    poison: dict[tuple[str, int], tuple[str, Any]]

    @classmethod
    def drawn(cls, draw: random.Random, number: int, other: Any) -> Run:
        way = draw.choice(WAYS)
        kind = draw.choice(STYLES.get(way, LIVE)) if way != "consumer" else way
        names = [f"{number}-{letter}" for letter in "abcdefgh"]
        sources = draw.choices(names, k=24)
        bad = draw.sample(sorted(set(sources)), draw.randint(1, 3))
        poison = {
            (source, draw.randint(1, sources.count(source))): poison_of(kind, draw, other) for source in bad
        }
        at_least_once = kind in {"execute", "executemany", "group"} and draw.random() < 0.4
        recovery = draw.choice(
            [Recovery.retry_and_park([]), Recovery.skip(), Recovery.retry_and_park([0.001])]
        )
        size, delivery = draw.choice([1, 3, 1000]), AtLeastOnce() if at_least_once and way == "live" else None
        return cls(number, way, kind, recovery, delivery, size, sources, poison)

    def __str__(self) -> str:
        poison = ", ".join(f"{source} {seq_nr} {name}" for (source, seq_nr), (name, _) in self.poison.items())
        how = f"{self.way}, {self.kind}, {self.recovery}, {self.delivery}, batches of {self.batch_size}"
        return f"run {self.number}: {how}: {poison}"

    @property
    def table(self) -> str:
        """What is written by table handlers, read models in SQL, and in rebuilds."""
        return f"m{self.number}"

    @cached_property
    def sums(self) -> Table:
        """That table, of table handlers."""
        return Table(self.table, key=("source_id",), increment=("total",), source="source_id")

    @property
    def is_internal(self) -> bool:
        """Whether an error is among them after which its connection goes, which is at fault first."""
        return any("XX" in what for what, _ in self.poison.values())

    def events(self) -> list[tuple[tuple[str, int], Event]]:
        """All, with their places."""
        numbers: Counter[str] = Counter()
        found = []
        for source in self.sources:
            numbers[source] += 1
            _, bad = self.poison.get((source, numbers[source]), ("", None))
            payload: Any = RawJson(bad) if bad is not None and self.kind == "statement" else Happened()
            event = Event(source, payload, f"t{self.number}", event_type="Happened")
            found.append(((source, numbers[source]), event))
        return found

    async def meet(self, session: Session, envelope: EventEnvelope) -> None:
        """Do what goes wrong at an event, if anything."""
        found = self.poison.get((envelope.source_id, envelope.seq_nr))
        if found is not None:
            await found[1](session)

    def definition(self) -> Any:
        """The projection."""
        made = MADE[self.kind](self)
        if self.kind == "fan-out":
            made.__projection__ = replace(
                made.__projection__, recovery=self.recovery, batch_size=self.batch_size
            )
            return made
        made.__qualname__ = f"P{self.number}"  # as it is found, where it is rebuilt
        setattr(sys.modules[__name__], made.__qualname__, made)
        options: dict[str, Any] = {} if self.kind == "group" else {"batch_size": self.batch_size}
        if self.way == "rebuild":
            options["tables"] = (self.sums if self.kind == "table" else self.table,)
        return projection(
            f"p{self.number}", entity_type=f"t{self.number}", recovery=self.recovery, delivery=self.delivery,
            **options,
        )(made)  # fmt: skip


def poison_of(kind: str, draw: random.Random, other: Any) -> tuple[str, Any]:
    """What goes wrong with an event, and its name: something that is done at it, or a value that comes of it."""
    values: Mapping[str, Sequence[Any]] = {"table": VALUES, "fan-out": MESSAGES, "statement": PAYLOADS}
    if kind not in values:
        return drawn(draw, other)
    if kind == "statement" or draw.random() < 0.5:
        value = draw.choice(values[kind])
        shown = value if isinstance(value, str) else type(value).__name__
        return f"comes to a {shown}", value
    name = draw.choice(list(ERRORS))
    return f"raises {name}", raising(ERRORS[name])


def per_event(run: Run) -> type[Any]:
    insert = INSERT if run.way != "rebuild" else f"INSERT INTO {run.table} (source_id, total) VALUES ($1, $2)"

    class PerEvent:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            row = envelope.source_id, envelope.seq_nr
            await run.meet(session, envelope)
            match run.kind:
                case "queue":
                    await session.queue(insert, *row)
                case "executemany":
                    await session.executemany(insert, [row])
                case _:
                    await session.execute(insert, *row)

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
            return run.sums.upsert(source_id=envelope.source_id, total=value_of(run, envelope, 1))

    return Tabled


def stated(run: Run) -> type[Any]:
    model = read_model(
        "SELECT source_id, count(*) AS total, max(6 / (n + 1)) AS most FROM happened GROUP BY source_id"
    )
    return type("Stated", (), {"happened": events(Happened), run.table: model})


def fanned_out(run: Run) -> FanOut:
    right = Message(f"tenant{run.number}", "a.b")

    def message(envelope: EventEnvelope) -> Any:
        found = value_of(run, envelope, right)
        return replace(found, tenant=right.tenant) if isinstance(found, Message) else found

    return FanOut(f"t{run.number}", message)


def value_of(run: Run, envelope: EventEnvelope, right: Any) -> Any:
    """What comes of an event, right or wrong, unless that is an error."""
    _, poison = run.poison.get((envelope.source_id, envelope.seq_nr), ("", right))
    if callable(poison):
        poison(None).send(None)
    return poison


MADE: Mapping[str, Callable[[Run], Any]] = {
    "execute": per_event,
    "queue": per_event,
    "executemany": per_event,
    "group": grouped,
    "reaction": reacting,
    "table": tabled,
    "statement": stated,
    "fan-out": fanned_out,
}


@pytest.fixture(params=DRIVERS)
async def journal(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        yield pool


@pytest.fixture(params=DRIVERS)
async def other(request: pytest.FixtureRequest, empty_dsn: str) -> AsyncIterator[Database]:
    """Another database, which handlers use besides."""
    async with connect(empty_dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def check_live(journal: Database, run: Run) -> None:
    """Have workers handle the events: no range stops, and each is handled, told to be passed over, or behind one."""
    async with journal.transaction() as session:
        await append(session, [event for _, event in run.events()])
    told = Told()

    await caught_up(journal, run.definition(), observer=told, settings=settings())

    # An internal error ends its connection, and the range goes on with another one.
    assert [one for one in told.all("failed") if not isinstance(one[-1], DatabaseUnavailable)] == []
    assert told.all("failed") == [] or run.is_internal
    parked, skipped = (
        {(e.source_id, e.seq_nr) for _, e, _ in told.all(kind)} for kind in ("parked", "skipped")
    )
    assert parked | skipped == set(run.poison)
    async with journal.session() as session:
        waiting = await session.fetch(
            "SELECT source_id, seq_nr FROM projections.parked_sources WHERE source_id LIKE $1",
            f"{run.number}-%",
        )
    assert {tuple(row.values()) for row in waiting} == parked
    behind = dict(parked)
    await check_handled(
        journal, run, {place for place, _ in run.events() if place[1] < behind.get(place[0], 100)} - skipped
    )


async def check_handled(journal: Database, run: Run, expected: set[tuple[str, int]]) -> None:
    """These events have had their effects, and no others."""
    mine = f"{run.number}-%"
    async with journal.session() as session:
        if run.way == "rebuild" and run.kind == "execute":
            rows = await session.fetch(f"SELECT source_id, total FROM {run.table}")
        elif run.kind in {"table", "statement"}:
            rows = await session.fetch(f"SELECT source_id, total FROM {run.table}")
            assert {row["source_id"]: row["total"] for row in rows} == Counter(place[0] for place in expected)
            return
        elif run.kind == "fan-out":
            rows = await session.fetch(
                "SELECT e.source_id, e.seq_nr FROM projections.webhook_deliveries AS d "
                "INNER JOIN projections.events AS e ON d.event_id = e.event_id::text WHERE e.source_id LIKE $1",
                mine,
            )
        else:
            rows = await session.fetch("SELECT source_id, seq_nr FROM effects WHERE source_id LIKE $1", mine)
    effects = [tuple(row.values()) for row in rows]
    assert set(effects) == expected
    assert run.delivery is not None or len(effects) == len(expected)


async def check_inline(journal: Database, run: Run) -> None:
    """An append of poison is refused, and says why; the next one of its source goes on."""
    definition = run.definition()
    await caught_up(journal, definition, settings=settings())
    inline = Inline(definition)
    async with journal.session() as session:
        await inline.set_mode(session, "inline")
    for place, event in run.events():
        if place in run.poison:
            with pytest.raises((ProjectionFailed, DatabaseError)) as refused:
                await append_inline(journal, inline, event)
            named = f"source '{place[0]}', seq_nr {place[1]}" in str(refused.value)
            assert named or (run.is_internal and isinstance(refused.value, DatabaseError))
            del run.poison[place]
        await append_inline(journal, inline, replace(event, payload=Happened()))
    await check_handled(journal, run, {place for place, _ in run.events()})


async def append_inline(journal: Database, inline: Inline, event: Event) -> None:
    async with journal.transaction() as session:
        await inline.append(session, [event])


async def check_rebuild(journal: Database, run: Run) -> None:
    """A rebuild names an event that it cannot handle, or leaves out all of them, and them alone."""
    definition = run.definition()
    async with journal.transaction() as session:
        await append(session, [event for _, event in run.events()])
    await fence_passes(journal)

    # Each attempt has another connection, which an internal error is blamed on first; and PostgreSQL counts what was
    # written to a table that is not rebuilt, also where it was undone.
    is_refused = run.is_internal or any("twice" in what for what, _ in run.poison.values())
    if run.recovery.give_up is not GiveUp.SKIP or run.is_internal:
        with pytest.raises(RebuildError) as refused:
            await rebuild(journal, journal.dsn, definition, RebuildOptions(splits=1))
        assert is_refused or any(
            f"source '{source}', seq_nr {seq_nr}" in str(refused.value) for source, seq_nr in run.poison
        )
    if is_refused:
        return
    done = await rebuild(journal, journal.dsn, definition, RebuildOptions(splits=1, skip=True, restart=True))

    assert done.skipped == len(run.poison)
    await check_handled(journal, run, {place for place, _ in run.events()} - set(run.poison))


async def check_consumer(journal: Database, run: Run) -> None:
    """All events reach their handler, but poison, which is kept by itself, or with its part."""
    group, in_parts = f"g{run.number}", run.batch_size == 1000 and run.recovery == Recovery.skip()

    async def handle(batch: Sequence[MatchedEvent]) -> None:
        for event in batch:
            async with journal.session() as session:
                await run.meet(session, event.envelope)
                await session.execute(INSERT, event.envelope.source_id, event.envelope.seq_nr)

    def by_source(batch: Sequence[MatchedEvent]) -> list[list[MatchedEvent]]:
        ordered = sorted(batch, key=lambda event: event.envelope.source_id)
        return [list(part) for _, part in groupby(ordered, key=lambda event: event.envelope.source_id)]

    reader = Consumer(journal, group, settings=quick())
    reader.handle(
        handle, name="h", entity_types=[f"t{run.number}"], retries=[0.001],
        batch=run.batch_size, split_by=by_source if in_parts else None,
    )  # fmt: skip
    expected = [
        f"{source} {seq_nr}"
        for (source, seq_nr), _ in run.events()
        if (source, seq_nr) not in run.poison and not (in_parts and source in {bad for bad, _ in run.poison})
    ]
    async with consuming(journal, reader, group=group):
        async with journal.transaction() as session:
            await append(session, [event for _, event in run.events()])
        await match_all(journal)
        await until(
            journal, "SELECT $1::text[] <@ array_agg(source_id || ' ' || seq_nr) FROM effects", expected
        )
        await until(
            journal, KEPT, group, sorted(f"{source} {seq_nr}" for source, seq_nr in run.poison), in_parts
        )


KEPT = """
SELECT
    coalesce(array_agg(m ->> 'source_id' || ' ' || (m ->> 'seq_nr')), '{}') @> $2
    AND ($3 OR count(*) = cardinality($2))
FROM projections.group_retries AS r
INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id, json_array_elements(r.matches) AS m
WHERE g.name = $1
"""


async def check(journal: Database, run: Run) -> None:
    """Have the events handled, as is drawn."""
    async with journal.session() as session:
        if run.kind == "table" or (run.way == "rebuild"):
            key = " PRIMARY KEY" * (run.kind == "table")
            await session.execute(SUMS.format(run.table).replace(" PRIMARY KEY", key))
    if run.kind == "fan-out":
        await endpoint(journal, f"ep{run.number}", tenant=f"tenant{run.number}")
    await CHECKS[run.way](journal, run)


CHECKS = {"live": check_live, "inline": check_inline, "rebuild": check_rebuild, "consumer": check_consumer}


class Anew:
    """Another database, by a connection of each one's own: rebuilds have an event loop of their own."""

    def __init__(self, database: Database) -> None:
        self._dsn = database.dsn

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with connect(self._dsn) as pool, pool.session() as session:
            yield session


async def check_all(journal: Database, other: Database, seed: int, runs: int) -> None:
    draw = random.Random(seed)
    for number in range(runs):
        run = Run.drawn(draw, number, Anew(other))
        try:
            async with asyncio.timeout(30):
                await check(journal, run)
        except BaseException as error:
            error.add_note(f"seed {seed}, {run}")
            raise


@pytest.mark.daily(2)
async def test_all_other_sources_go_on(journal: Database, other: Database) -> None:
    await check_all(journal, other, 541, 6)


@pytest.mark.slow  # the same of many that are drawn each time
async def test_all_other_sources_go_on_whatever_is_drawn(journal: Database, other: Database) -> None:
    seed = int(os.environ.get("POISON_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")

    await check_all(journal, other, seed, 100)
