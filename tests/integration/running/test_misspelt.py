"""What is written wrongly is refused with what to write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

import offsets
from journal import (
    Database,
    Event,
    HistoricEvent,
    InvalidEvent,
    InvalidValue,
    ProjectionsError,
    append,
    append_sync,
    current_events,
    import_events,
)
from journal.database.sync import connect_sync
from journal.suggestions import did_you_mean
from projections import handles, projection
from projections.subscriptions import Publication, publish_all, subscribe
from projections.subscriptions.publishing import publish_all_sync
from projections.webhooks import FanOut
from spark_projections.source.options import parse_options
from tests.fixtures.commands import called

EVENT = Event("a", {}, entity_type="plane", event_type="Landed")
HISTORIC = HistoricEvent(
    "a", {}, entity_type="plane", event_type="Landed", seq_nr=1, db_timestamp=datetime(2020, 1, 1, tzinfo=UTC)
)


async def test_one_event_where_a_list_is_due(dsn: str, database: Database) -> None:
    async with database.transaction() as session:
        for given in (EVENT, "event", None, iter([EVENT])):
            with pytest.raises(InvalidEvent, match=r"append takes a list.*write append\(…, \[event\]\)"):
                await append(session, given)  # type: ignore[arg-type]
        with pytest.raises(
            InvalidEvent, match=r"dict is not an event: write Event\(source_id, payload, entity_type=…\)"
        ):
            await append(session, [{"a": 1}])  # type: ignore[list-item]
        with pytest.raises(InvalidEvent, match=r"write publish_all\(…, \[publication\]\)"):
            await publish_all(session, Publication("t", {}))  # type: ignore[arg-type]
        with pytest.raises(InvalidEvent, match=r"tuple is not a Publication: write Publication\("):
            await publish_all(session, [("t", {})])  # type: ignore[list-item]
    with pytest.raises(InvalidEvent, match=r"Event is not a HistoricEvent: write HistoricEvent\("):
        await import_events(database, [EVENT])  # type: ignore[list-item]
    with pytest.raises(InvalidEvent, match=r"import_events takes a list, not one HistoricEvent"):
        await import_events(database, HISTORIC)  # type: ignore[arg-type]
    with connect_sync(dsn) as connection:
        with pytest.raises(InvalidEvent, match=r"write append_sync\(…, \[event\]\)"):
            append_sync(connection, EVENT)  # type: ignore[arg-type]
        with pytest.raises(InvalidEvent, match=r"write publish_all_sync\(…, \[publication\]\)"):
            publish_all_sync(connection, Publication("t", {}))  # type: ignore[arg-type]


async def test_a_pool_is_no_connection_to_append_on(database: Database) -> None:
    with pytest.raises(TypeError, match=r"journal\.\w+ is not a supported connection: pass a Session"):
        await append(database, [EVENT])


class Landed(BaseModel):
    pass


def declare() -> Any:
    @projection("p", entity_type="*")
    class Everything:
        @handles(Landed)
        async def landed(self, session: Any, event: Landed, envelope: Any) -> None: ...

    return Everything


async def live(database: Database) -> None:
    events: AsyncIterator[Any] = offsets.live_events(database, "pl*")
    await anext(events)


async def current(database: Database) -> None:
    async for _ in current_events(database, "*"):
        pass


async def test_an_entity_type_is_no_pattern(database: Database) -> None:
    refused = r"\* stands for nothing in it"
    for make in (declare, lambda: FanOut("*")):
        with pytest.raises(InvalidEvent, match=refused):
            make()
    for read in (live, current):
        with pytest.raises(InvalidEvent, match=refused):
            await read(database)
    async with database.session() as session:
        with pytest.raises(InvalidEvent, match=refused):
            await append(session, [Event("a", {}, entity_type="*", event_type="Landed")])
        with pytest.raises(ProjectionsError, match=refused):
            await subscribe(session, "g", entity_types=["plane", "*"])
        with pytest.raises(InvalidEvent, match=refused):
            await offsets.register(session, "p", "*")
    with pytest.raises(InvalidValue, match=refused):
        parse_options({"entitytype": "*"})


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("pawse", ["pause", "resume"], ". Did you mean 'pause'?"),
        ("Delays", ["delays"], ". Did you mean 'delays'?"),
        ("xyz", ["pause"], ""),
        ("pause", [], ""),
    ],
)
def test_the_known_name_that_is_most_like_it_is_suggested(name: str, known: list[str], meant: str) -> None:
    assert did_you_mean(name, known) == meant


async def test_commands_projections_and_groups_are_suggested(dsn: str, database: Database) -> None:
    async with database.session() as session:
        await offsets.register(session, "delays", "plane")
        await subscribe(session, "billing")
    said = {
        line: called(*line.split(), "--dsn", dsn).stderr
        for line in ("pause delay", "status dellays", "offsets show Delays", "groups show biling")
    }
    meant = {line: error.rpartition("Did you mean ")[2].strip() for line, error in said.items()}

    assert meant == {
        "pause delay": "'delays'?",
        "status dellays": "'delays'?",
        "offsets show Delays": "'delays'?",
        "groups show biling": "'billing'?",
    }
    assert "Did you mean 'pause'?" in called("pawse").stderr
    assert "Did you mean 'endpoints'?" in called("webhooks", "endpoint").stderr
    assert "'install'" in called("schema", "instal").stderr
