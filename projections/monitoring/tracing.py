"""
A span for each batch, and each call of a handler of a group.

Through the API package of OpenTelemetry alone: where spans go is the application's business.
Without that package nothing is made, and nothing is paid.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from datetime import datetime
from typing import NamedTuple, Protocol

from journal import EventEnvelope, SliceRange
from projections.extras import from_extra
from projections.running import StatusObserver

with from_extra("otel"):
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SYSTEM = "slice-projections"
_MOST_LINKS = 128
"""As many as OpenTelemetry keeps by default."""
_KEY = '"traceparent"'
PROPAGATOR = TraceContextTextMapPropagator()
FIELDS = PROPAGATOR.fields


class _Matched(Protocol):
    @property
    def envelope(self) -> EventEnvelope: ...


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

    def handled_page(
        self, name: str, slices: SliceRange, events: int, newest: datetime, seconds: float
    ) -> None:
        """Make a span of what has ended just now; which spans its events come from is not known."""
        now = time.time_ns()
        attributes = _message_counts(name, events) | {
            "projections.projection": name,
            "projections.range": str(slices),
            "projections.events": events,
            "projections.last_timestamp": newest.isoformat(),
        }
        span = self._tracer.start_span(
            f"handle {name}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            start_time=now - int(seconds * 1e9),
        )
        span.end(now)

    def error(self, name: str, envelope: EventEnvelope, error: BaseException, attempt: int) -> None:
        """Record an attempt that has failed inside of a batch that goes on, as at-least-once batches do."""
        for (projection, slices), (span, _) in self._open.items():
            if projection == name and envelope.slice in slices:
                span.record_exception(error, {"projections.attempt": attempt})

    def handling(self, group: str, handler: str, batch: Sequence[_Matched]) -> AbstractContextManager[Span]:
        """
        A span of a call of a handler of a group: give this method to ``Consumer(around=...)``.

        It is linked to the spans that the events come from, as those of batches are. An error of the handler is
        recorded on it.
        """
        envelopes = [event.envelope for event in batch]
        origins = _origins(envelopes)
        return self._tracer.start_as_current_span(
            f"handle {group} {handler}",
            context=_parent(origins),
            kind=SpanKind.CONSUMER,
            attributes=_messaging(group, envelopes) | {"projections.handler": handler},
            links=[Link(origin) for origin in origins if origin is not None],
        )


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
    return _message_counts(group, len(envelopes))


def _message_counts(group: str, count: int) -> dict[str, str | int]:
    """What OpenTelemetry's conventions have of what handles messages."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "process",
        "messaging.operation.name": "handle",
        "messaging.consumer.group.name": group,
        "messaging.batch.message_count": count,
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
    carrier = {key: value for key, value in metadata.items() if key in FIELDS and isinstance(value, str)}
    origin = trace.get_current_span(PROPAGATOR.extract(carrier, Context())).get_span_context()
    return origin if origin.is_valid else None


def _parent(origins: Sequence[SpanContext | None]) -> Context:
    """Of the one span that all come from; else of none, so that what started the worker is not the parent of all."""
    if len(origins) == 1 and origins[0] is not None:
        return trace.set_span_in_context(trace.NonRecordingSpan(origins[0]), Context())
    return Context()
