"""What was tried: attempts with their requests and answers, and the events that they were about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from journal import NotFound
from projections.extras import from_extra
from projections.webhooks.api.delivery_operations import DeliveryWithData, get_delivery
from projections.webhooks.api.endpoint_operations import list_endpoints
from projections.webhooks.api.log_operations import AttemptView, get_attempt, get_event, list_attempts
from projections.webhooks.api.message_operations import erase_message
from projections.webhooks.page.rendering import raw_or_none
from projections.webhooks.page.visit import Visit
from projections.webhooks.signed_request import body_of

with from_extra("webhooks"):
    from starlette.responses import Response

_FILTERS = {"endpoint": "endpoint_id", "topic": "topics", "status": "status", "event": "event_id"}
"""What the page calls them, and what the API does."""
_MOST_ENDPOINTS = 5
"""Of an event whose deliveries are shown at a time: each is asked for by itself."""
_MOST_CHOICES = "100"


async def listed(visit: Visit) -> Response:
    """Attempts, the newest first."""
    given = visit.request.query_params
    page = await visit.ask(list_attempts, [("limit", "50"), *_asked(given)])
    chosen = {name: given.get(name, "") for name in _FILTERS}
    urls = await urls_of(visit, chosen["endpoint"])
    return visit.render("attempts.html", page=page, chosen=chosen, urls=urls, here="attempts")


async def shown(visit: Visit) -> Response:
    """One attempt: what was sent, and what came back."""
    include = [("include", name) for name in ("event.data", "response_data", "endpoint")]
    attempt = await visit.ask(get_attempt, include)
    return visit.render("attempt.html", attempt=attempt, sent=_body(attempt), here="attempts")


async def of_event(visit: Visit) -> Response:
    """One event, its deliveries, and what was tried."""
    event_id = visit.request.path_params["event_id"]
    event = await visit.ask(get_event)
    found: list[DeliveryWithData] = []
    chosen = visit.request.query_params.get("endpoint", "")
    first = [chosen] if chosen in event.endpoint_ids else event.endpoint_ids[:_MOST_ENDPOINTS]
    for endpoint_id in first:
        try:
            found.append(
                await visit.ask(get_delivery, place={"endpoint_id": endpoint_id, "event_id": event_id})
            )
        except NotFound:  # its endpoint was removed, or it is long done
            continue
    attempts = await visit.ask(list_attempts, [("event_id", event_id), ("limit", "50")])
    return visit.render(
        "event.html", event=event, data=raw_or_none(event.data), deliveries=found, attempts=attempts,
        others=[each for each in event.endpoint_ids if each not in first],
        urls=await urls_of(visit, ""), here="attempts",
    )  # fmt: skip


async def erasure(visit: Visit) -> Response:
    """Ask whether the data of an event are to be erased."""
    return visit.render("erase.html", event=await visit.ask(get_event), here="attempts")


async def erase(visit: Visit) -> Response:
    """Erase them."""
    await visit.ask(erase_message)
    return visit.go("events", visit.request.path_params["event_id"], said="erased")


async def urls_of(visit: Visit, chosen: str) -> dict[str, str]:
    """URLs of endpoints to choose from, the first of them, and of the one that is chosen."""
    found = await visit.ask(list_endpoints, [("limit", _MOST_CHOICES)])
    urls = {each.endpoint_id: each.url for each in found.data}
    return urls | ({chosen: urls.get(chosen, chosen)} if chosen else {})


def _asked(given: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for name, field in _FILTERS.items():
        if value := given.get(name, "").strip():
            yield field, value
    for name in ("next", "prev"):
        if value := given.get(name, ""):
            yield name, value


def _body(attempt: AttemptView) -> str | None:
    """The body of the request, as every attempt has it; None where its event is no longer kept."""
    data = None if attempt.event is None else raw_or_none(attempt.event.data)
    return None if data is None else body_of(attempt.topic, attempt.event_time, data).decode()
