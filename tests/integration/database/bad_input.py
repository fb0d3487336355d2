"""Bad input, one function for each row of docs/operations/errors.md: does it, and returns what the user is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

import offsets
from journal import ConnectionSettings, Database, ProjectionsError, RawJson, append, connect
from journal.events import HistoricEvent
from journal.importing import import_events
from projections import EventEnvelope, Recovery, Session, handles, projection, run
from tests.fixtures.journal import event, historic, uuid7
from tests.fixtures.projections import running, settings

SURROGATE = chr(0xD800)


class Landed(BaseModel):
    """What the projections of these cases handle."""

    delay: int = 0


@dataclass
class Bench:
    """What a case may use."""

    dsn: str
    empty_dsn: str
    login: Callable[[str | None], str]
    folder: Path
    caplog: pytest.LogCaptureFixture

    def connect(self, dsn: str | None = None, **values: Any) -> AbstractAsyncContextManager[Database]:
        return connect(self.dsn if dsn is None else dsn, ConnectionSettings(**values))

    def logged(self, action: str) -> str:
        found = [r.getMessage() for r in self.caplog.records if getattr(r, "action", None) == action]
        assert found, [r.getMessage() for r in self.caplog.records]
        return found[0]


Case = Callable[[Bench], Awaitable[str]]
CASES: dict[str, Case] = {}


def case(what: str) -> Callable[[Case], Case]:
    """The function that does what a row's first column says."""

    def register(function: Case) -> Case:
        assert what not in CASES
        CASES[what] = function
        return function

    return register


async def told(work: Awaitable[Any]) -> str:
    """The message of the library's own error."""
    try:
        await work
    except (ProjectionsError, ValueError) as error:
        return str(error)
    raise AssertionError("nothing was refused")


# --- events


def refused(what: str, *events: Any, expected: int | None = None, stored: int = 0) -> None:
    """A case that appends; with some events of the source there before, and nothing more after."""

    @case(what)
    async def attempt(bench: Bench) -> str:
        async with bench.connect() as database:
            async with database.transaction() as session:
                await append(session, [event("a") for _ in range(stored)])
            message = await told(append_in(database, events, expected))
            async with database.session() as session:
                assert await session.fetchval("SELECT count(*) FROM projections.events") == stored
        return message


async def append_in(database: Database, events: Any, expected: int | None) -> None:
    async with database.transaction() as session:
        await append(session, list(events), expected_seq_nr=expected)


def refused_import(what: str, *events: HistoricEvent) -> None:
    @case(what)
    async def attempt(bench: Bench) -> str:
        async with bench.connect() as database:
            message = await told(import_events(database, list(events)))
            async with database.session() as session:
                assert await session.fetchval("SELECT count(*) FROM projections.events") == 0
        return message


refused("an empty source id", event(""))
refused("a source id of 10 kB", event("x" * 10_000))
refused("NUL in a source id", event("a\0b"))
refused("half a surrogate pair in a source id", event("a" + SURROGATE))
refused("NUL in a payload", event(payload={"s": "a\0b"}))
refused("half a surrogate pair in a payload", event(payload={"s": SURROGATE}))
refused("a payload that is not JSON", event(payload=RawJson("{'a': 1}")))
refused("a payload that nothing makes JSON of", event(payload={"o": object()}))
refused("NaN in a payload", event(payload={"n": float("nan")}))
refused("1e400 in a payload", event(payload=RawJson('{"n": 1e400}')))
refused("an integer of more than 4,300 digits in a payload", event(payload={"n": 10**5000}))
refused("a payload of 20 MB", event(payload={"s": "x" * 20_000_000}))
refused("another seq_nr than expected", event("a"), expected=1, stored=2)
refused("an entity type that is a pattern", event("a", entity_type="plane*"))
refused("a negative seq_nr expected", event("a"), expected=-1)
refused("a source of another entity type", event("a", entity_type="ship"), stored=1)
refused_import("an import that skips a seq_nr", historic("a", 1), historic("a", 3))
refused_import("an import with a negative seq_nr", historic("a", -1))
refused_import("an import with a naive timestamp", historic("a", 1, db_timestamp=datetime(2020, 1, 1)))  # noqa: DTZ001
refused_import(
    "an import from the year 9999", historic("a", 1, db_timestamp=datetime.max.replace(tzinfo=UTC))
)


@case("an event_id used again for other content")
async def _(bench: Bench) -> str:
    same: UUID = uuid7(datetime.fromisoformat("2026-01-01T00:00:00Z"))
    async with bench.connect() as database:
        await append_in(database, [event("a", {"n": 1}, event_id=same)], None)
        return await told(append_in(database, [event("a", {"n": 2}, event_id=same)], None))


# --- projections


def declared(what: str, define: Callable[[], object]) -> None:
    @case(what)
    async def attempt(_: Bench) -> str:
        return await told(asyncio.to_thread(define))


def _handles_nothing() -> object:
    @projection("p", entity_type="plane")
    class Delays:
        pass

    return Delays


def _not_async() -> object:
    @projection("p", entity_type="plane")
    class Delays:
        @handles(Landed)  # type: ignore[arg-type]
        def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...

    return Delays


def _signature() -> object:
    @projection("p", entity_type="plane")
    class Delays:
        @handles(Landed)  # type: ignore[arg-type]
        async def landed(self, event: Landed) -> None: ...

    return Delays


def _two_handlers() -> object:
    @projection("p", entity_type="plane")
    class Delays:
        @handles(Landed)
        async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...
        @handles(Landed)
        async def again(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...

    return Delays


declared("a class without a handler", _handles_nothing)
declared("a handler that is not async", _not_async)
declared("a handler with a wrong signature", _signature)
declared("two handlers for one event", _two_handlers)


def does(
    what: Callable[[Session, EventEnvelope], Awaitable[object]], name: str = "delays", **options: Any
) -> type[Any]:
    """A projection of planes whose handler does something."""

    @projection(name, **{"entity_type": "plane", "recovery": Recovery.retry_and_park(0), **options})
    class Does:
        @handles(Landed)
        async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
            await what(session, envelope)

    return Does


async def nothing(session: Session, envelope: EventEnvelope) -> None:
    """What a handler does that is not meant to fail."""


async def run_once(database: Database, *definitions: Any, **options: Any) -> None:
    chosen = {"settings": settings(), **options}
    await run(database, *definitions, until_caught_up=True, **chosen)


@case("an object that is not a projection")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        return await told(run_once(database, Landed))


@case("two projections of one name in a process")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        return await told(run_once(database, does(nothing), does(nothing)))


@case("a projection to be removed that runs")
async def _(bench: Bench) -> str:
    async with bench.connect() as database, running(database, does(nothing)), database.session() as session:
        return await told(offsets.remove(session, "delays"))


@case("a name that belongs to another entity type")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await run_once(database, does(nothing))
        return await told(run_once(database, does(nothing, entity_type="ship")))


@case("an entity type without events")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await run_once(database, does(nothing, entity_type="plain"))
    return bench.logged("no_events")


async def parked(bench: Bench, definition: type[Any], payload: object = None) -> str:
    """Run over one event of `bad` and one of `good`: the first is parked, which is told; the second handled."""
    async with bench.connect() as database:
        await append_in(database, [event("bad", payload), event("good")], None)
        await run_once(database, definition)
        async with database.session() as session:
            rows = await session.fetch("SELECT source_id, error FROM projections.parked_sources")
            handled = await session.fetch("SELECT source_id FROM projections.source_offsets")
    assert [row["source_id"] for row in handled] == ["good"]
    ((source_id, error),) = [tuple(row.values()) for row in rows]
    assert source_id == "bad"
    assert error in bench.logged("parked")
    return str(error)


@case("a handler that raises for every event")
async def _(bench: Bench) -> str:
    async def fail(session: Session, envelope: EventEnvelope) -> None:
        raise LookupError("no such carrier")

    async with bench.connect() as database:
        await append_in(database, [event("a"), event("b")], None)
        async with running(database, does(fail), settings=settings(alike_failures=1)) as seen:
            await seen.first("failed")
    return bench.logged("failed")


def for_bad(what: Callable[[Session], Awaitable[object]]) -> type[Any]:
    async def handle(session: Session, envelope: EventEnvelope) -> None:
        if envelope.source_id == "bad":
            await what(session)

    return does(handle)


@case("a payload that does not fit its model")
async def _(bench: Bench) -> str:
    return await parked(bench, does(nothing), {"delay": "late"})


@case("a handler that raises")
async def _(bench: Bench) -> str:
    async def fail(_: Session) -> None:
        raise LookupError("no such carrier")

    return await parked(bench, for_bad(fail))


@case("a handler that catches an error of the database")
async def _(bench: Bench) -> str:
    async def swallow(session: Session) -> None:
        with suppress(ProjectionsError):
            await session.execute("SELECT 1 / 0")

    return await parked(bench, for_bad(swallow))


@case("a handler that executes COMMIT")
async def _(bench: Bench) -> str:
    return await parked(bench, for_bad(lambda session: session.execute("COMMIT")))


@case("a handler that commits on the driver's connection")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await append_in(database, [event("a")], None)
        return await told(run_once(database, for_any(lambda session: session.connection.execute("COMMIT"))))


def for_any(what: Callable[[Session], Awaitable[object]]) -> type[Any]:
    return does(lambda session, _: what(session))


@case('an event type that unhandled="fail" does not know')
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await append_in(database, [event("a", event_type="Crashed")], None)
        await run_once(database, does(nothing, unhandled="fail"))
    return bench.logged("parked")


@case("a handler that blocks the event loop")
async def _(bench: Bench) -> str:
    async def block(_: Session) -> None:
        time.sleep(0.3)  # the fault under test

    async with bench.connect() as database:
        await append_in(database, [event("a")], None)
        await run_once(database, for_any(block), settings=settings(blocked_after=timedelta(seconds=0.05)))
    return bench.logged("loop_blocked")
