"""Deliveries that were given up: tried again, or dropped."""

from __future__ import annotations

from projections.extras import from_extra
from projections.webhooks.api.delivery_operations import (
    drop_delivery,
    list_deliveries,
    retry_dead_letters,
    retry_delivery,
)
from projections.webhooks.page.attempts import urls_of
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response

_ROWS = "50"


async def listed(visit: Visit) -> Response:
    """Those that were given up, the newest first, without their data: a page of them may be large."""
    given = visit.request.query_params
    chosen = given.get("endpoint", "")
    query = [("states", "dead"), ("limit", _ROWS), *([("endpoint_id", chosen)] if chosen else [])]
    page = await visit.ask(list_deliveries, [*query, ("next", given.get("next", ""))])
    return visit.render(
        "failed.html", page=page, chosen=chosen, urls=await urls_of(visit, chosen), here="failed"
    )


async def retry(visit: Visit) -> Response:
    """Try one again, now."""
    await visit.ask(retry_delivery, place=_place(visit))
    return visit.go("events", _place(visit)["event_id"], said="retried")


async def retry_all(visit: Visit) -> Response:
    """Try all of an endpoint again, or all there are."""
    endpoint_id = visit.form.get("endpoint_id", "")
    done = await visit.ask(retry_dead_letters, body={"endpoint_id": endpoint_id} if endpoint_id else {})
    return visit.go("failed", said="all-retried" if done.complete else "some-retried")


async def drop(visit: Visit) -> Response:
    """Give one up for good."""
    await visit.ask(drop_delivery, place=_place(visit))
    return visit.go("failed", said="dropped")


def _place(visit: Visit) -> dict[str, str]:
    return {name: visit.form.get(name, "") for name in ("endpoint_id", "event_id")}
