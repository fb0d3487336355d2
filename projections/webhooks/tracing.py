"""A span for each request of a webhook, see :mod:`projections.monitoring.tracing`."""

from __future__ import annotations

from urllib.parse import urlsplit

from projections.extras import from_extra
from projections.monitoring.tracing import FIELDS, PROPAGATOR, SYSTEM
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.retry_policy import is_success
from projections.webhooks.sender import Sender

with from_extra("otel"):
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider


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
    return Context() if traceparent is None else PROPAGATOR.extract({"traceparent": traceparent}, Context())


def _attributes_of_request(outgoing: Outgoing) -> dict[str, str | int]:
    url = urlsplit(outgoing.url)
    event_id = next((value for name, value in outgoing.headers if name == "webhook-id"), "")
    again = {} if outgoing.attempt == 1 else {"http.request.resend_count": outgoing.attempt - 1}
    return {
        "http.request.method": "POST",
        "url.scheme": url.scheme,
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "messaging.system": SYSTEM,
        "messaging.message.id": event_id,
        "projections.event_id": event_id,
        **again,
    }


def _with_traceparent(outgoing: Outgoing) -> Outgoing:
    """With the current span, where the endpoint's own headers name none."""
    if any(name.lower() in FIELDS for name, _ in outgoing.headers):
        return outgoing
    added: dict[str, str] = {}
    PROPAGATOR.inject(added)
    return outgoing._replace(headers=(*outgoing.headers, *added.items()))
