"""A span for each batch: what it says, what it comes from, and what is below it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id, get_current_span

from journal import Database, Event, EventEnvelope, Session, append, connect
from projections import AtLeastOnce, Recovery, SliceRange, StatusObserver
from projections.monitoring.tracing import Tracing
from projections.subscriptions import Consumer, MatchedEvent, publish
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Happened,
    caught_up,
    effects,
    execute,
    failing,
    recording,
)
from tests.fixtures.subscriptions import Seen, consuming, match_all, quick

ORIGIN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203332-01"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn) as pool:
        await execute(pool, EFFECTS)
        yield pool


class Traces:
    """Spans that end up in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = Tracing(self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def batches(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith("handle ")]


async def happen(database: Database, *events: tuple[str, Any]) -> None:
    """Append an event for each source, with its metadata, in one transaction."""
    async with database.transaction() as session:
        await append(
            session, [Event(source, Happened(), "plane", metadata=metadata) for source, metadata in events]
        )


def written(span: ReadableSpan) -> str:
    """The context that others name a span by."""
    assert span.context is not None
    return traceparent(span.context)


def traceparent(context: Any) -> str:
    return (
        f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
    )


async def test_a_batch_is_a_span_that_says_what_was_handled(journal: Database) -> None:
    traces = Traces()
    await happen(journal, ("a", {}), ("b", {}), ("a", {}))

    await caught_up(journal, recording(), observer=traces.observer)

    (span,) = traces.batches
    assert span.name == "handle p"
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None
    assert span.attributes is not None
    first, last = (span.attributes[f"projections.{one}_timestamp"] for one in ("first", "last"))
    assert str(first) < str(last)
    assert dict(span.attributes) == {
        "messaging.system": "slice-projections",
        "messaging.operation.type": "process",
        "messaging.operation.name": "handle",
        "messaging.consumer.group.name": "p",
        "messaging.batch.message_count": 3,
        "projections.projection": "p",
        "projections.range": "0-1023",
        "projections.events": 3,
        "projections.first_timestamp": first,
        "projections.last_timestamp": last,
    }


async def test_a_page_that_is_handled_inside_the_database_is_a_span() -> None:
    traces = Traces()
    traces.observer.handled_page("p", SliceRange(0, 511), 20_000, datetime(2030, 1, 1, tzinfo=UTC), 0.5)

    (span,) = traces.batches
    assert span.name == "handle p"
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 500_000_000
    assert span.attributes is not None
    assert span.attributes["projections.events"] == 20_000
    assert span.attributes["projections.last_timestamp"] == "2030-01-01T00:00:00+00:00"


async def test_an_error_is_recorded_on_the_batch_that_it_has_rolled_back(journal: Database) -> None:
    traces = Traces()
    await happen(journal, ("a", {}), ("b", {}))
    skipping = recording(failing(("b", 1)), recovery=Recovery.skip())

    await caught_up(journal, skipping, observer=traces.observer)

    both, before, alone = traces.batches
    assert before.status.status_code is StatusCode.UNSET
    for failed in (both, alone):
        assert failed.status.status_code is StatusCode.ERROR
        assert "b 1" in str(failed.status.description)
        assert [event.name for event in failed.events] == ["exception"]


async def test_a_batch_goes_on_with_the_trace_that_all_its_events_come_from(journal: Database) -> None:
    traces = Traces()
    await happen(journal, ("a", {"traceparent": ORIGIN}), ("b", {"traceparent": ORIGIN, "tracestate": "x=1"}))

    await caught_up(journal, recording(), observer=traces.observer)

    (span,) = traces.batches
    assert span.parent is not None
    assert traceparent(span.parent) == ORIGIN
    assert [traceparent(link.context) for link in span.links] == [ORIGIN]


async def test_a_batch_of_several_origins_is_linked_to_each_once(journal: Database) -> None:
    traces = Traces()
    origins: list[Any] = [ORIGIN, OTHER, ORIGIN]
    await happen(
        journal, *((source, {"traceparent": one}) for source, one in zip("abc", origins, strict=True))
    )

    await caught_up(journal, recording(), observer=traces.observer)

    (span,) = traces.batches
    assert span.parent is None
    assert [traceparent(link.context) for link in span.links] == [ORIGIN, OTHER]


async def test_one_traced_event_among_others_is_linked_and_no_parent(journal: Database) -> None:
    traces = Traces()
    await happen(journal, ("a", {"traceparent": ORIGIN}), ("b", {}))

    await caught_up(journal, recording(), observer=traces.observer)

    (span,) = traces.batches
    assert span.parent is None
    assert [traceparent(link.context) for link in span.links] == [ORIGIN]


@pytest.mark.slow
@pytest.mark.parametrize(
    "metadata",
    [{"traceparent": "nonsense"}, {"traceparent": 7}, ["traceparent"], {"traceparent": None}, None],
)
async def test_metadata_that_names_no_span_does_no_harm(journal: Database, metadata: Any) -> None:
    traces = Traces()
    await happen(journal, ("a", metadata))

    await caught_up(journal, recording(), observer=traces.observer)

    (span,) = traces.batches
    assert (span.parent, span.links) == (None, ())
    assert await effects(journal) == [("a", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"delivery": AtLeastOnce(concurrency=4)}], ids=["exact", "at-least-once"]
)
async def test_what_a_handler_traces_is_below_its_batch(journal: Database, options: dict[str, Any]) -> None:
    traces = Traces()
    tracer = traces.provider.get_tracer("application")

    async def trace(_: Session, __: Happened, envelope: EventEnvelope) -> None:
        with tracer.start_as_current_span(envelope.source_id):
            pass

    await happen(journal, ("a", {}), ("b", {}))
    with tracer.start_as_current_span("the whole run") as outer:
        await caught_up(journal, recording(trace, **options), observer=traces.observer)
        assert get_current_span() is outer

    (batch,) = traces.batches
    inner = [span for span in traces.spans if span.name in {"a", "b"}]
    assert len(inner) == 2
    assert all(span.parent is not None and traceparent(span.parent) == written(batch) for span in inner)
    assert batch.parent is None


async def test_an_attempt_that_fails_at_least_once_is_recorded_on_its_batch(journal: Database) -> None:
    traces = Traces()
    await happen(journal, ("a", {}), ("b", {}))
    parking = recording(failing(("b", 1)), recovery=NO_RETRY, delivery=AtLeastOnce())

    await caught_up(journal, parking, observer=traces.observer)

    (span,) = traces.batches
    assert span.status.status_code is StatusCode.UNSET
    (event,) = span.events
    assert event.name == "exception"
    assert event.attributes is not None
    assert event.attributes["projections.attempt"] == 1


async def test_without_a_provider_batches_are_handled_as_ever(journal: Database) -> None:
    await happen(journal, ("a", {"traceparent": ORIGIN}))

    await caught_up(journal, recording(), observer=Tracing())

    assert await effects(journal) == [("a", 1)]


async def test_an_observer_that_fails_does_not_keep_others_from_being_told(journal: Database) -> None:
    class Broken(StatusObserver):
        def batch_started(self, *_: Any) -> None:
            raise ValueError("broken")

    traces = Traces()
    await happen(journal, ("a", {}))

    await caught_up(journal, recording(), observer=[Broken(), traces.observer])

    assert len(traces.batches) == 1


@pytest.mark.slow
def test_without_opentelemetry_the_extra_is_named() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import projections.monitoring.tracing"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 1
    assert "pip install 'slice-projections[otel]'" in done.stderr.splitlines()[-1]


async def test_what_a_group_handles_is_linked_to_the_spans_that_its_events_come_from(
    database: Database,
) -> None:
    traces, seen = Traces(), Seen()
    tracer = traces.provider.get_tracer("application")
    handled: list[bool] = []

    async def handle(batch: Sequence[MatchedEvent]) -> None:
        with tracer.start_as_current_span("inner"):
            handled.append(True)
        if len(handled) == 1:
            raise ValueError("not yet")
        await seen(batch)

    reader = Consumer(database, "g", settings=quick(), around=Tracing(traces.provider).handling)
    reader.handle(handle, name="all", retries=[0])
    async with consuming(database, reader):
        async with database.transaction() as session:
            await publish(session, "a", 1, traceparent=ORIGIN)
            await publish(session, "b", 1, traceparent=OTHER)
        await match_all(database)
        await seen.until_events(2)

    failed, span = traces.batches
    assert span.name == "handle g all"
    assert (failed.status.status_code, span.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert [traceparent(link.context) for link in span.links] == [ORIGIN, OTHER]
    assert (span.attributes or {})["messaging.consumer.group.name"] == "g"
    inner = [each.parent for each in traces.spans if each.name == "inner"]
    assert [parent and traceparent(parent) for parent in inner] == [written(failed), written(span)]
