"""Handlers of groups: what is refused when they are registered, their delays, and their parts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from journal import Database, EventEnvelope, InvalidEvent, event_type
from journal.database import Fault
from projections import InvalidHandler, Retries
from projections.errors import HandlerFailed
from projections.subscriptions import (
    Consumer,
    ConsumerSettings,
    InvalidSubscription,
    MatchedEvent,
    Publication,
    Publisher,
)
from projections.subscriptions.dead_letters import decode_batch, encode_batch
from projections.subscriptions.group_handler import HandlerOptions, RegisteredHandler, register
from projections.subscriptions.sse import as_json

NOWHERE = cast("Database", None)
MINUTE = timedelta(minutes=1)


async def nothing(batch: Sequence[MatchedEvent]) -> None:
    """A handler."""


def matched(match_id: int, source_id: str = "a", **values: Any) -> MatchedEvent:
    fields: dict[str, Any] = {
        "seq_nr": match_id, "db_timestamp": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "slice": 97,
        "event_id": UUID(int=match_id), "entity_type": "plane", "event_type": "Landed", "version": 1,
        "payload_json": '{ "b": 1.0, "a": "\\u0000é" }', "metadata_json": None, "tags": ["x"],
    }  # fmt: skip
    return MatchedEvent(match_id, [1, 2], EventEnvelope(source_id, **fields | values))


@event_type("handlers.weighed", version=2, upcast={1: lambda old: {"grams": old["kg"] * 1000}})
class Weighed(BaseModel):
    grams: int


def test_handlers_and_clients_get_the_newest_version() -> None:
    old = matched(1, event_type="handlers.weighed", payload_json='{"kg": 2}')
    assert (old.payload, old.event) == ({"grams": 2000}, Weighed(grams=2000))
    assert as_json(old).endswith(',"payload":{"grams":2000}}')
    assert as_json(matched(1)).endswith(f',"payload":{matched(1).envelope.payload_json}}}')


def registered(**options: Any) -> RegisteredHandler:
    return register("h", nothing, HandlerOptions(**options), MINUTE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": []}, "retries has no pause"),
        ({"retries": [1, -1]}, "0 or longer, not -1 day"),
        ({"retries": [timedelta(seconds=-5)]}, "0 or longer"),
        ({"retries": ["soon"]}, "a list of seconds or timedeltas"),
        ({"retries": 60}, "a list of seconds or timedeltas"),
        ({"retries": [float("nan")]}, "a list of seconds or timedeltas"),
        ({"timeout": 0}, "timeout must be longer than 0"),
        ({"timeout": "soon"}, "timeout is seconds or a timedelta, not 'soon'"),
        ({"timeout": float("inf")}, "timeout is seconds or a timedelta, not inf"),
        ({"batch": 0}, "batch must be 1 or more, not 0"),
        ({"batch": "all"}, "batch must be 1 or more, not 'all'"),
        ({"retrys": [1]}, "'retrys' is not one of topics, "),
    ],
)
def test_options_that_can_not_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidHandler, match=message):
        Consumer(NOWHERE, "g").handle(nothing, name="h", **options)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "a\nb", 7])
def test_a_name_that_can_not_be_is_refused(name: Any) -> None:
    with pytest.raises(InvalidHandler, match="1 to 255 printable characters"):
        Consumer(NOWHERE, "g").handle(nothing, name=name)


def test_a_name_of_255_characters_is_taken() -> None:
    assert Consumer(NOWHERE, "g").handle(nothing, name="é" * 255) is nothing


@pytest.mark.parametrize("handler", [lambda _: None, "nothing", 3])
def test_what_is_no_async_function_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidHandler, match="must be an async function"):
        Consumer(NOWHERE, "g").handle(handler, name="h")


def test_partials_and_objects_with_an_async_call_are_handlers() -> None:
    class Calls:
        async def __call__(self, batch: Sequence[MatchedEvent]) -> None: ...

    consumer = Consumer(NOWHERE, "g")
    consumer.handle(functools.partial(nothing), name="a")
    consumer.handle(Calls(), name="b")


def test_a_handler_registered_twice_is_refused() -> None:
    consumer = Consumer(NOWHERE, "g")
    consumer.handle(nothing, name="h")

    with pytest.raises(InvalidHandler, match="'h' is registered twice"):
        consumer.handle(nothing, name="h")


def test_the_decorator_gives_the_function_back() -> None:
    async def mine(batch: Sequence[MatchedEvent]) -> None: ...

    assert Consumer(NOWHERE, "g").handle(name="h", topics=["a"])(mine) is mine


async def test_a_consumer_without_handlers_does_not_run() -> None:
    with pytest.raises(InvalidHandler, match="has no handler"):
        await Consumer(NOWHERE, "g").run()


def test_a_consumer_needs_the_name_of_a_group() -> None:
    with pytest.raises(InvalidSubscription, match="1 to 255 characters"):
        Consumer(NOWHERE, "")


def test_a_lease_that_does_not_outlast_two_heartbeats_is_refused() -> None:
    with pytest.raises(ValidationError, match="does not outlast two heartbeats"):
        ConsumerSettings(lease=timedelta(seconds=5))


def test_delays_are_used_one_after_another_and_then_none_is_left() -> None:
    handler = registered(retries=Retries([60, timedelta(minutes=5)], jitter=0))

    after = [handler.after(attempts, Fault.EVENT) for attempts in (0, 1, 2, 3)]

    assert after == [(1, MINUTE), (2, 5 * MINUTE), (3, None), (4, None)]


def test_what_is_not_the_fault_of_a_batch_uses_up_no_try() -> None:
    handler = registered(retries=Retries([60, timedelta(minutes=5)], jitter=0))

    after = [handler.after(attempts, Fault.BATCH) for attempts in (0, 1, 2)]

    assert after == [(0, MINUTE), (1, 5 * MINUTE), (2, 5 * MINUTE)]


def test_a_handler_without_retries_has_no_delay() -> None:
    assert registered().after(0, Fault.EVENT) == (1, None)


def test_a_page_is_cut_into_batches_that_a_handler_can_not_change() -> None:
    events = [matched(number) for number in range(1, 6)]

    batches = registered(batch=2).batches(events)

    assert [[event.match_id for event in batch] for batch in batches] == [[1, 2], [3, 4], [5]]
    assert all(isinstance(batch, tuple) for batch in batches)


def test_parts_are_those_of_split_by_without_empty_ones() -> None:
    events = [matched(1, "a"), matched(2, "b"), matched(3, "a")]

    def by_source(batch: Sequence[MatchedEvent]) -> list[list[MatchedEvent]]:
        return [[e for e in batch if e.envelope.source_id == source_id] for source_id in "abc"]

    parts = registered(split_by=by_source).parts(events)

    assert [[event.match_id for event in part] for part in parts] == [[1, 3], [2]]


@pytest.mark.parametrize("split", [lambda batch: [batch[:1]], lambda batch: [batch, batch], lambda _: []])
def test_parts_that_are_not_the_batch_are_refused(split: Any) -> None:
    with pytest.raises(InvalidHandler, match="each belongs to one part"):
        registered(split_by=split).parts([matched(1), matched(2)])


def test_a_kept_batch_is_what_it_was_to_the_byte() -> None:
    batch = [matched(1), matched(2**62, "ü", metadata_json='{"x": 1e3}', tags=None)]

    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize(
    ("publication", "message"),
    [
        (Publication("", 1), "topic must have 1 to 255"),
        (Publication("t" * 256, 1), "topic must have 1 to 255"),
        (Publication("t", float("nan")), "payload"),
        (Publication("t", 1, event_id=cast("UUID", "x")), "event_id must be a UUID"),
        (Publication("t", 1, not_before=datetime(2026, 1, 1)), "no zone"),  # noqa: DTZ001 - that is the point
    ],
)
def test_what_can_not_be_published_is_refused_before_it_is_sent(
    publication: Publication, message: str
) -> None:
    with pytest.raises(InvalidEvent, match=message):
        publication.row()


@pytest.mark.parametrize("name", ["", "x" * 246, "a\0", "\ud800"])
def test_a_publisher_with_a_name_that_can_not_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidSubscription, match="publisher"):
        Publisher(NOWHERE, name)


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), BaseExceptionGroup("g", [KeyboardInterrupt()])]
)
async def test_what_would_end_a_process_is_a_failure_of_the_batch(error: BaseException) -> None:
    async def fail(_: Sequence[MatchedEvent]) -> None:
        raise error

    with pytest.raises(HandlerFailed) as raised:
        await register("h", fail, HandlerOptions(), MINUTE).handle([matched(1)])

    assert raised.value.__cause__ is error
