"""Endpoints: listed, shown, paused, removed; their secrets; messages to try them out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from journal import ProjectionsError, RawJson
from projections.extras import from_extra
from projections.interests import parse_topics
from projections.webhooks.api import endpoint_operations as api
from projections.webhooks.api.json_text import kept
from projections.webhooks.api.log_operations import list_endpoint_attempts
from projections.webhooks.api.problems import FieldProblem, Problem
from projections.webhooks.api.topic_operations import list_topics
from projections.webhooks.page.rendering import raw_or_none
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response

_ROWS = "50"
_DAY = "1440"
"""Minutes."""
_GRACES = {
    "0": "now: they are known to others",
    "3600": "in an hour",
    "86400": "in a day",
    "604800": "in a week",
}
_A_DAY = "86400"


async def listed(visit: Visit) -> Response:
    """All endpoints, a page at a time."""
    place = [("next", visit.request.query_params.get("next", "")), ("limit", _ROWS)]
    page = await visit.ask(api.list_endpoints, place)
    stats = await visit.ask(api.list_endpoint_stats, [*place, ("minutes", _DAY)])
    return visit.render(
        "endpoints.html", page=page, stats={each.endpoint_id: each for each in stats.data}, here="endpoints"
    )


async def shown(visit: Visit) -> Response:
    """One endpoint."""
    endpoint = await visit.ask(api.get_endpoint)
    stats = await visit.ask(api.get_endpoint_stats, [("minutes", _DAY)])
    attempts = await visit.ask(list_endpoint_attempts, [("limit", "10")])
    return visit.render("endpoint.html", endpoint=endpoint, stats=stats, attempts=attempts, here="endpoints")


async def pause(visit: Visit) -> Response:
    """Pause it."""
    await visit.ask(api.pause_endpoint, body={"reason": "paused on the page for tenants"})
    return _back(visit, "paused")


async def resume(visit: Visit) -> Response:
    """Resume it."""
    await visit.ask(api.resume_endpoint)
    return _back(visit, "resumed")


async def enable(visit: Visit) -> Response:
    """Enable one that its failures have disabled."""
    await visit.ask(api.enable_endpoint)
    return _back(visit, "resumed")


async def verify(visit: Visit) -> Response:
    """Send its URL a challenge."""
    found = await visit.ask(api.verify_endpoint)
    return _back(visit, "verified" if found.verified else "unverified")


async def removal(visit: Visit) -> Response:
    """Ask whether it is to be removed."""
    return visit.render("remove.html", endpoint=await visit.ask(api.get_endpoint), here="endpoints")


async def remove(visit: Visit) -> Response:
    """Remove it."""
    await visit.ask(api.delete_endpoint)
    return visit.go("", said="removed")


async def rotation(visit: Visit) -> Response:
    """Ask how long the old secrets sign alongside a new one."""
    endpoint = await visit.ask(api.get_endpoint)
    return visit.render("rotate.html", endpoint=endpoint, graces=_GRACES, chosen=_A_DAY, here="endpoints")


async def rotate(visit: Visit) -> Response:
    """Make a new secret, and show it this once."""
    grace = visit.form.get("grace", _A_DAY)
    if grace not in _GRACES:
        raise Problem(422, "invalid_body", "choose until when the old secrets sign")
    made = await visit.ask_once(api.rotate_secret, {"grace": int(grace)})
    return visit.render(
        "secret.html",
        endpoint_id=visit.request.path_params["endpoint_id"],
        secret=made["secret"],
        is_new=False,
        here="endpoints",
    )


async def test(visit: Visit) -> Response:
    """Ask what to send."""
    endpoint = await visit.ask(api.get_endpoint)
    wanted = await _examples(visit, endpoint)
    chosen = visit.request.query_params.get("topic", "") or next(iter(wanted), "")
    topic = chosen or re.sub(r"\*+", "test", endpoint.topics[0])
    sample = {"topic": topic, "data": wanted.get(topic) or '{"test": true}', "expires_at": ""}
    return _test_form(visit, endpoint, wanted, sample)


async def send(visit: Visit) -> Response:
    """Send a test message."""
    given = {name: visit.form.get(name, "").strip() for name in ("topic", "expires_at")}
    given["data"] = visit.form.get("data", "")  # it is sent as it was written
    try:
        body = {
            "topic": given["topic"],
            "data": _json(given["data"]),
            "expires_at": _utc(given["expires_at"]),
        }
        sent = await visit.ask_once(api.send_test, body)
    except (Problem, ProjectionsError) as error:
        problem = visit.refused(error)
        endpoint = await visit.ask(api.get_endpoint)
        return _test_form(visit, endpoint, await _examples(visit, endpoint), given, problem)
    return visit.go("events", str(sent["event_id"]))


async def _examples(visit: Visit, endpoint: api.OneEndpoint) -> dict[str, str | None]:
    """The topics that the endpoint wants, each with its first example."""
    known = await visit.ask(list_topics)
    wanted = parse_topics(endpoint.topics)
    return {
        each.topic: raw_or_none(each.examples[0]) if each.examples else None
        for each in known.data
        if wanted.matches(each.topic)
    }


def _test_form(
    visit: Visit, endpoint: Any, wanted: Iterable[str], given: dict[str, str], problem: Problem | None = None
) -> Response:
    return visit.render(
        "test.html", status=200 if problem is None else problem.status, endpoint=endpoint, topics=list(wanted),
        given=given, problem=problem, here="endpoints",
    )  # fmt: skip


def _utc(text: str) -> str | None:
    """A time as a browser's field has it, without a zone; None where there is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).isoformat()
    except ValueError:
        wrong = FieldProblem(field="expires_at", message="is not a time such as 2026-01-31T12:00")
        raise Problem(422, "invalid_body", "the expiry is not a time", [wrong]) from None


def _json(text: str) -> RawJson:
    found = kept(text)
    if str(found) != text:
        wrong = FieldProblem(field="data", message="is not JSON")
        raise Problem(422, "invalid_body", "the data is not JSON", [wrong])
    return found


def _back(visit: Visit, said: str) -> Response:
    return visit.go("endpoints", visit.request.path_params["endpoint_id"], said=said)
