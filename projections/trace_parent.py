"""The span that something comes from, as W3C Trace Context writes it."""

from __future__ import annotations

import re
import sys

_FORM = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(text: str) -> bool:
    """Whether a text is version, trace, span and flags."""
    return _FORM.fullmatch(text) is not None


def current_traceparent() -> str | None:
    """The span of OpenTelemetry that is being recorded here; None: there is none."""
    # Who has never imported it has no span; so what nobody traces pays nothing, and needs no package.
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_current_span()
    if span is None or not span.is_recording():
        return None
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
