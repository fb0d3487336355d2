"""Never run: mypy checks it, and tests/typing/test_typing.py compares what it says with the comments ``# error:``."""

# ruff: noqa: F821 - mypy knows reveal_type

from collections.abc import Sequence

from pydantic import BaseModel

from projections import (
    Changes,
    Database,
    EventEnvelope,
    Session,
    Table,
    handles,
    handles_group,
    load,
    projection,
    read_source,
    run,
)


class Landed(BaseModel):
    carrier: str


class Departed(BaseModel):
    origin: str


TABLE = Table("t", key=("carrier",), increment=("flights",))


@projection("events", entity_type="plane")
class Events:
    @handles(Landed)
    async def right(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        reveal_type(event.carrier)  # error: note: Revealed type is "str"
        event.origin  # noqa: B018 # error: "Landed" has no attribute "origin"
        await session.execute("SELECT 1", envelope.seq_nr)

    @handles(Departed)  # error: Argument 1 to "__call__" of "handles"
    async def wrong_event(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...

    @handles(Landed)  # error: Argument 1 to "__call__" of "handles"
    async def wrong_session(self, session: int, event: Landed, envelope: EventEnvelope) -> None: ...

    @handles(Landed)  # error: Argument 1 to "__call__" of "handles"
    async def no_envelope(self, session: Session, event: Landed) -> None: ...

    @handles(dict)  # error: Value of type variable "M" of "handles" cannot be "dict
    async def no_model(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...


@projection("tables", entity_type="plane")
class Tables:
    @handles(Landed)
    def right(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return TABLE.upsert(carrier=event.carrier, flights=1)

    @handles(Departed)  # error: Argument 1 to "__call__" of "handles"
    def wrong_event(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return None

    @handles(Landed)  # error: Argument 1 to "__call__" of "handles"
    def wrong_result(self, event: Landed, envelope: EventEnvelope) -> int:
        return 1


@projection("groups", entity_type="plane")
class Groups:
    @handles_group(Landed)
    async def right(self, session: Session, events: Sequence[tuple[Landed, EventEnvelope]]) -> None:
        for event, envelope in events:
            reveal_type(event)  # error: note: Revealed type is "
            reveal_type(envelope.seq_nr)  # error: note: Revealed type is "int"

    @handles_group(Departed)  # error: Argument 1 to "__call__"
    async def wrong_event(self, session: Session, events: Sequence[tuple[Landed, EventEnvelope]]) -> None: ...


class Both:
    @handles_group(Landed, Departed)
    async def both(
        self, session: Session, events: Sequence[tuple[Landed | Departed, EventEnvelope]]
    ) -> None: ...


async def start(database: Database) -> None:
    await run(database, Events, Tables, ranges=4)
    await run(database, Events, ranges="4")  # error: Argument "ranges" to "run"
    reveal_type(Events().right)  # error: note: Revealed type is "def (


def landings(count: int, event: Landed) -> int:
    return count + len(event.carrier)


async def read(session: Session) -> None:
    reveal_type(read_source(session, "a"))  # error: note: Revealed type is "typing.AsyncIterator[tuple
    async for event in read_source(session, "a", Landed, Departed):
        reveal_type(event)  # error: note: Revealed type is "
    reveal_type((await load(session, "a", landings, 0, Landed)).state)  # error: note: Revealed type is "int"
    await load(session, "a", landings, "", Landed)  # error: Argument 3 to "load"
