"""A span for each request of a webhook: what it says, and what is sent of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from projections.monitoring.tracing import TracedSender
from projections.webhooks.sender import Outgoing, Reply
from tests.fixtures.attempts import reply

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
        "server.address": "example.com",
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
