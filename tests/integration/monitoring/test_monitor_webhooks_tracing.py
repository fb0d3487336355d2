"""A span for each request of a webhook: what it says, and what is sent of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from journal import Database, EventIdConflict, InvalidEvent, RawJson
from projections import run
from projections.monitoring.tracing import Tracing
from projections.subscriptions import publish
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import send
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import HttpSender
from projections.webhooks.tracing import TracedSender
from tests.fixtures.attempts import reply
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.webhook_delivery import LOCAL, TENANT, delivering, finished, hook

HEADERS = (("webhook-id", "e1"), ("webhook-signature", "v1,signed"))
OUTGOING = Outgoing("https://example.com:8443/T000/secret?token=secret", HEADERS, b"{}", timedelta(seconds=1))


class Answering:
    """A sender that keeps what it was given."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.sent: list[Outgoing] = []
        self.closed = False

    async def send(self, outgoing: Outgoing) -> Reply:
        self.sent.append(outgoing)
        return reply(self.code)

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans.get_finished_spans()
    return span


async def test_a_request_is_a_client_span_that_holds_no_secret(
    spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    answered = await TracedSender(Answering("204"), provider=provider).send(OUTGOING)

    span = only(spans)
    assert (answered.code, span.name, span.kind, span.parent) == (
        "204",
        "deliver webhook",
        SpanKind.CLIENT,
        None,
    )
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "url.scheme": "https",
        "server.address": "example.com",
        "server.port": 8443,
        "messaging.system": "slice-projections",
        "messaging.message.id": "e1",
        "projections.event_id": "e1",
        "http.response.status_code": 204,
    }


@pytest.mark.parametrize("code", ["500", "302", "timeout"])
async def test_what_did_not_succeed_is_an_error(
    spans: InMemorySpanExporter, provider: TracerProvider, code: str
) -> None:
    await TracedSender(Answering(code), provider=provider).send(OUTGOING)

    span = only(spans)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, code)
    assert (span.attributes or {})["error.type"] == code


async def test_receivers_are_told_of_the_span_only_when_that_is_asked_for(
    spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    quiet, telling = Answering("204"), Answering("204")
    await TracedSender(quiet, provider=provider).send(OUTGOING)
    spans.clear()

    await TracedSender(telling, inject=True, provider=provider).send(OUTGOING)

    context = only(spans).get_span_context()
    assert context is not None
    parent = (
        f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
    )
    assert quiet.sent == [OUTGOING]
    assert telling.sent == [OUTGOING._replace(headers=(*HEADERS, ("traceparent", parent)))]


async def test_a_traceparent_of_the_endpoint_stays(provider: TracerProvider) -> None:
    sender = Answering("204")
    own = OUTGOING._replace(headers=(("Traceparent", "theirs"),))
    traced = TracedSender(sender, inject=True, provider=provider)

    await traced.send(own)
    await traced.aclose()

    assert (sender.sent, sender.closed) == ([own], True)


async def test_a_trace_goes_from_who_sends_to_the_request(
    database: Database, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with RawServer(respond(204)) as server, HttpSender(LOCAL) as own:
        await hook(database, server.url)
        async with database.transaction() as session:
            await send(session, TENANT, "flight.landed", 1, traceparent=f"00-{trace_id}-{span_id}-01")
        async with asyncio.timeout(300):
            await run(
                database, FanOut(), settings=run_settings(), observer=Tracing(provider), until_caught_up=True
            )
        async with delivering(database, TracedSender(own, provider=provider)):
            await finished(database)

    batch, request = spans.get_finished_spans()
    for span in (batch, request):
        assert span.parent is not None
        assert (format_trace_id(span.parent.trace_id), format_span_id(span.parent.span_id)) == (
            trace_id,
            span_id,
        )
    assert batch.name == "handle webhooks/webhook-message"
    assert (batch.attributes or {})["messaging.operation.type"] == "process"
    assert "http.request.resend_count" not in (request.attributes or {})
    assert all("traceparent" not in dict(request.headers) for request in server.requests)


async def test_the_same_message_of_another_span_is_sent_once(database: Database) -> None:
    async with database.transaction() as session:
        sent = [
            await send(
                session,
                TENANT,
                "a",
                RawJson(data),
                message_id="m",
                traceparent=f"00-{'1' * 32}-{span * 16}-01",
            )
            for span, data in (("1", '{"a": 1, "b": [2]}'), ("2", '{"b":[2],"a":1}'))
        ]
        with pytest.raises(EventIdConflict):
            async with session.savepoint():
                await send(session, TENANT, "a", {"a": 2}, message_id="m")

    assert sent[0] == sent[1]


async def test_another_attempt_says_which_it_is(
    spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    await TracedSender(Answering("204"), provider=provider).send(OUTGOING._replace(attempt=3))

    assert (only(spans).attributes or {})["http.request.resend_count"] == 2


async def test_what_is_no_traceparent_is_refused(database: Database) -> None:
    async with database.transaction() as session:
        with pytest.raises(InvalidMessage, match="traceparent is version, trace, span and flags"):
            await send(session, TENANT, "a", 1, traceparent="b7ad")


async def test_what_is_sent_or_published_in_a_span_comes_from_it(
    database: Database, provider: TracerProvider
) -> None:
    own = f"00-{'1' * 32}-{'2' * 16}-01"
    async with database.transaction() as session:
        with provider.get_tracer("application").start_as_current_span("order") as span:
            context = span.get_span_context()
            await send(session, TENANT, "sent", 1)
            await send(session, TENANT, "sent-by-another", 1, traceparent=own)
            await publish(session, "published", 1, metadata={"by": "me"})
            await publish(session, "published by another", 1, traceparent=own)
            await publish(session, "published as said", 1, metadata={"traceparent": own})
        await send(session, TENANT, "of-nobody", 1)
        await publish(session, "published by nobody", 1)
        rows = await session.fetch(
            "SELECT event_type, metadata ->> 'traceparent' AS origin, metadata ->> 'by' AS by FROM projections.events"
        )
    current = (
        f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
    )
    assert {row["event_type"]: row["origin"] for row in rows} == {
        "sent": current, "sent-by-another": own, "published": current, "published by another": own,
        "published as said": own, "of-nobody": None, "published by nobody": None,
    }  # fmt: skip
    assert {row["event_type"] for row in rows if row["by"] == "me"} == {"published"}


async def test_a_publication_names_a_span_or_none(database: Database) -> None:
    async with database.transaction() as session:
        with pytest.raises(InvalidEvent, match="traceparent is version, trace, span and flags"):
            await publish(session, "a", 1, traceparent="b7ad")
