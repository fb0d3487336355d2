"""All pages and forms, by their paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from projections.extras import from_extra
from projections.webhooks.page import (
    attempts,
    credentials,
    endpoints,
    failed,
    settings_form,
    statistics,
    topics,
)
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response

View: TypeAlias = Callable[[Visit], Awaitable[Response]]
_ONE = "/endpoints/{endpoint_id}"

PAGES: Mapping[str, View] = {
    "/": endpoints.listed,
    "/endpoints/new": settings_form.new,
    _ONE: endpoints.shown,
    f"{_ONE}/change": settings_form.change,
    f"{_ONE}/rotate": endpoints.rotation,
    f"{_ONE}/certificate": credentials.certificate,
    f"{_ONE}/oauth": credentials.oauth,
    f"{_ONE}/test": endpoints.test,
    f"{_ONE}/remove": endpoints.removal,
    "/topics": topics.listed,
    "/topics/{topic}": topics.shown,
    "/attempts": attempts.listed,
    "/attempts/{attempt_id}": attempts.shown,
    "/events/{event_id}": attempts.of_event,
    "/events/{event_id}/erase": attempts.erasure,
    "/failed": failed.listed,
    "/statistics": statistics.shown,
}

FORMS: Mapping[str, View] = {
    "/endpoints/new": settings_form.create,
    f"{_ONE}/change": settings_form.save,
    f"{_ONE}/pause": endpoints.pause,
    f"{_ONE}/resume": endpoints.resume,
    f"{_ONE}/enable": endpoints.enable,
    f"{_ONE}/verify": endpoints.verify,
    f"{_ONE}/rotate": endpoints.rotate,
    f"{_ONE}/certificate": credentials.set_certificate,
    f"{_ONE}/certificate/remove": credentials.remove_certificate,
    f"{_ONE}/oauth": credentials.set_oauth,
    f"{_ONE}/oauth/remove": credentials.remove_oauth,
    f"{_ONE}/test": endpoints.send,
    f"{_ONE}/remove": endpoints.remove,
    "/events/{event_id}/erase": attempts.erase,
    "/failed/retry": failed.retry,
    "/failed/retry-all": failed.retry_all,
    "/failed/drop": failed.drop,
}
