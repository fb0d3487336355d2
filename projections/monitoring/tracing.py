"""
A span for each batch, each call of a handler of a group, and each request of a webhook.

Through the API package of OpenTelemetry alone: where spans go is the application's business.
Without that package nothing is made, and nothing is paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from journal import EventEnvelope, SliceRange
from projections.extras import from_extra
from projections.running.observer import StatusObserver
from projections.webhooks.verdicts import is_success

with from_extra("otel"):
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:  # needs an extra that others than those who deliver may not have
    from projections.subscriptions import MatchedEvent
    from projections.webhooks.sender import Outgoing, Reply, Sender

_SYSTEM = "slice-projections"
_MOST_LINKS = 128
"""As many as OpenTelemetry keeps by default."""
_KEY = '"traceparent"'
_PROPAGATOR = TraceContextTextMapPropagator()
_FIELDS = _PROPAGATOR.fields


class _Open(NamedTuple):
    span: Span
    token: Token[Context]


class Tracing(StatusObserver):
    """
    Makes a span of each batch: handlers run in it, so what they trace is below it.

    Events whose metadata has a ``traceparent`` (W3C Trace Context) are linked. When all of a batch come from one and
    the same span, that one is the parent: its trace goes on.

    Args:
        provider: Of tracers; None for the global one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("projections", tracer_provider=provider)
        self._open: dict[tuple[str, SliceRange], _Open] = {}

    def batch_started(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        """Begin a span, and make it the current one of this task."""
        origins = _origins(envelopes)
        span = self._tracer.start_span(
            f"handle {name}",
            context=_parent(origins),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(name, slices, envelopes),
            links=[Link(origin) for origin in origins if origin is not None],
        )
        self._open[name, slices] = _Open(span, context.attach(trace.set_span_in_context(span)))

    def batch_ended(self, name: str, slices: SliceRange, error: BaseException | None) -> None:
        """End the span, with the error that rolled the batch back."""
        span, token = self._open.pop((name, slices))
        context.detach(token)
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        span.end()

    def error(self, name: str, envelope: EventEnvelope, error: BaseException, attempt: int) -> None:
        """Record an attempt that has failed inside of a batch that goes on, as at-least-once batches do."""
        for (projection, slices), (span, _) in self._open.items():
            if projection == name and envelope.slice in slices:
                span.record_exception(error, {"projections.attempt": attempt})


class TracedHandling:
    """
    Makes a span of each call of a handler of a group: give it to ``Consumer(around=...)``.

    It is linked to the spans that the events come from, and below that one if there is a single one, as those of
    :class:`Tracing` are. An error of the handler is recorded on it.

    Args:
        provider: Of tracers; None for the global one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("projections", tracer_provider=provider)

    def __call__(
        self, group: str, handler: str, batch: Sequence[MatchedEvent]
    ) -> AbstractContextManager[Span]:
        """A span that lasts for the block, and is the current one in it."""
        envelopes = [event.envelope for event in batch]
        origins = _origins(envelopes)
        return self._tracer.start_as_current_span(
            f"handle {group} {handler}",
            context=_parent(origins),
            kind=SpanKind.CONSUMER,
            attributes=_messaging(group, envelopes) | {"projections.handler": handler},
            links=[Link(origin) for origin in origins if origin is not None],
        )


class TracedSender:
    """
    Makes a span of each request of a sender of webhooks.

    It is below the span in which the event was written, where that is known (``traceparent`` of :func:`send`, or in the
    metadata of the event). It tells the host and the event's id; neither the rest of the URL nor the headers, which may
    be secret.

    Args:
        sender: What makes them; closing this one closes it.
        inject: Send ``traceparent`` along, so that what receivers trace is below. It tells them the ids of spans.
        provider: Of tracers; None for the global one.
    """

    def __init__(
        self, sender: Sender, *, inject: bool = False, provider: TracerProvider | None = None
    ) -> None:
        self._sender = sender
        self._inject = inject
        self._tracer = trace.get_tracer("projections", tracer_provider=provider)

    async def send(self, outgoing: Outgoing) -> Reply:
        """Send one in a span of its own."""
        attributes = _attributes_of_request(outgoing)
        with self._tracer.start_as_current_span(
            "deliver webhook",
            context=_written_in(outgoing.traceparent),
            kind=SpanKind.CLIENT,
            attributes=attributes,
        ) as span:
            reply = await self._sender.send(_with_traceparent(outgoing) if self._inject else outgoing)
            if reply.status is not None:
                span.set_attribute("http.response.status_code", reply.status)
            if not is_success(reply.code):
                span.set_attribute("error.type", reply.code)
                span.set_status(Status(StatusCode.ERROR, reply.code))
        return reply

    async def aclose(self) -> None:
        """Close the sender."""
        await self._sender.aclose()


def _written_in(traceparent: str | None) -> Context:
    """A context that has the span as its parent; else none, so that what started the process is not the parent."""
    return Context() if traceparent is None else _PROPAGATOR.extract({"traceparent": traceparent}, Context())


def _attributes_of_request(outgoing: Outgoing) -> dict[str, str | int]:
    url = urlsplit(outgoing.url)
    event_id = next((value for name, value in outgoing.headers if name == "webhook-id"), "")
    again = {} if outgoing.attempt == 1 else {"http.request.resend_count": outgoing.attempt - 1}
    return {
        "http.request.method": "POST",
        "url.scheme": url.scheme,
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "messaging.system": _SYSTEM,
        "messaging.message.id": event_id,
        "projections.event_id": event_id,
        **again,
    }


def _with_traceparent(outgoing: Outgoing) -> Outgoing:
    """With the current span, where the endpoint's own headers name none."""
    if any(name.lower() in _FIELDS for name, _ in outgoing.headers):
        return outgoing
    added: dict[str, str] = {}
    _PROPAGATOR.inject(added)
    return outgoing._replace(headers=(*outgoing.headers, *added.items()))


def _attributes(name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> dict[str, str | int]:
    times = [envelope.db_timestamp for envelope in envelopes]
    return _messaging(name, envelopes) | {
        "projections.projection": name,
        "projections.range": str(slices),
        "projections.events": len(envelopes),
        "projections.first_timestamp": min(times).isoformat(),
        "projections.last_timestamp": max(times).isoformat(),
    }


def _messaging(group: str, envelopes: Sequence[EventEnvelope]) -> dict[str, str | int]:
    """What OpenTelemetry's conventions have of what handles messages."""
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.type": "process",
        "messaging.operation.name": "handle",
        "messaging.consumer.group.name": group,
        "messaging.batch.message_count": len(envelopes),
    }


def _origins(envelopes: Iterable[EventEnvelope]) -> list[SpanContext | None]:
    """The spans in which events were appended, each once; None among them where an event does not say."""
    found: dict[tuple[int, int] | None, SpanContext | None] = {}
    for envelope in envelopes:
        origin = _origin(envelope)
        found.setdefault((origin.trace_id, origin.span_id) if origin else None, origin)
        if len(found) > _MOST_LINKS:
            break
    return list(found.values())


def _origin(envelope: EventEnvelope) -> SpanContext | None:
    # Most metadata has none: look before it is parsed.
    if envelope.metadata_json is None or _KEY not in envelope.metadata_json:
        return None
    metadata = envelope.metadata
    if not isinstance(metadata, Mapping):
        return None
    carrier = {key: value for key, value in metadata.items() if key in _FIELDS and isinstance(value, str)}
    origin = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return origin if origin.is_valid else None


def _parent(origins: Sequence[SpanContext | None]) -> Context:
    """Of the one span that all come from; else of none, so that what started the worker is not the parent of all."""
    if len(origins) == 1 and origins[0] is not None:
        return trace.set_span_in_context(trace.NonRecordingSpan(origins[0]), Context())
    return Context()
