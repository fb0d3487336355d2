"""The form of an endpoint's settings, of a new one and of one that is changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from pydantic_core import from_json

from journal import InvalidValue, ProjectionsError
from projections.durations import duration_text, parse_duration
from projections.extras import from_extra
from projections.webhooks.api import endpoint_operations as api
from projections.webhooks.api.problems import FieldProblem, Problem
from projections.webhooks.api.topic_operations import list_topics
from projections.webhooks.endpoints import EndpointSettings
from projections.webhooks.page.forms import Form
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response

_CHOICES = ("ordering", "on_dead", "when_disabled")


async def new(visit: Visit) -> Response:
    """Ask for the settings of a new endpoint: where there is a list of topics, some have to be chosen."""
    known = await visit.ask(list_topics)
    values = _values(EndpointSettings(url=""))
    return await _shown(visit, values | ({"topics": []} if known.data else {}))


async def create(visit: Visit) -> Response:
    """Make an endpoint, and show its secret this once."""
    try:
        made = await visit.ask_once(api.create_endpoint, _read(visit.form, EndpointSettings(url="")))
    except (Problem, ProjectionsError) as error:
        return await _shown(visit, _given(visit.form), problem=visit.refused(error))
    return visit.render(
        "secret.html", status=201, endpoint_id=made["endpoint_id"], secret=made["secret"], is_new=True,
        here="endpoints",
    )  # fmt: skip


async def change(visit: Visit) -> Response:
    """Show the settings of an endpoint, to be changed."""
    endpoint = await visit.ask(api.get_endpoint)
    return await _shown(visit, _values(endpoint), endpoint)


async def save(visit: Visit) -> Response:
    """Change an endpoint, unless somebody has changed it since the form was shown."""
    endpoint = await visit.ask(api.get_endpoint)
    try:
        body = _read(visit.form, endpoint)
        await visit.ask(api.change_endpoint, body=body, version=visit.form.get("version", ""))
    except (Problem, ProjectionsError) as error:
        return await _shown(visit, _given(visit.form), endpoint, problem=visit.refused(error))
    return visit.go("endpoints", endpoint.endpoint_id, said="changed")


async def _shown(
    visit: Visit, values: dict[str, Any], endpoint: Any = None, problem: Problem | None = None
) -> Response:
    known = await visit.ask(list_topics)
    wrong = {each.field.partition(".")[0]: each.message for each in problem.errors} if problem else {}
    return visit.render(
        "settings.html", status=problem.status if problem else 200, values=values, endpoint=endpoint,
        topics=known.data, problem=problem, wrong=wrong, here="endpoints",
    )  # fmt: skip


def _values(settings: EndpointSettings) -> dict[str, Any]:
    """Settings as the form shows them. Values of headers are not shown: they may be secret."""
    shown = settings.model_dump(include={"url", "description", *_CHOICES, "gzip"})
    policy = settings.policy
    return shown | {
        "topics": list(settings.topics),
        "filter": ""
        if settings.filter is None
        else json.dumps(settings.filter, indent=2, ensure_ascii=False),
        "headers": "",
        "without_headers": False,
        "retries": ", ".join(map(duration_text, policy.schedule)),
        "timeout": duration_text(policy.timeout),
        "max_in_flight": str(settings.max_in_flight),
        "rate_limit": "" if settings.rate_limit is None else f"{settings.rate_limit:g}",
    }


def _given(form: Form) -> dict[str, Any]:
    """A form as it was sent, to be shown again; but for headers, which may be secret."""
    texts = ("url", "description", "filter", "retries", "timeout", "max_in_flight", "rate_limit", *_CHOICES)
    return {name: form.get(name, "") for name in texts} | {
        "topics": _topics(form), "headers": "", "without_headers": "without_headers" in form, "gzip": "gzip" in form,
    }  # fmt: skip


def _read(form: Form, settings: EndpointSettings) -> dict[str, Any]:
    """
    What the form asks of the API; Problem: fields cannot be read.

    What it does not show of the policy stays as it is; headers too, where none are written.
    """
    wrong: list[FieldProblem] = []

    def read(name: str, reader: Callable[[str], Any]) -> Any:
        try:
            return reader(form.get(name, "").strip())
        except ValueError as error:
            wrong.append(FieldProblem(field=name, message=str(error)))
            return None

    headers = read("headers", _headers)
    policy = settings.policy.model_dump(mode="json") | {
        "schedule": read("retries", _pauses), "timeout": read("timeout", _seconds),
    }  # fmt: skip
    body = {
        "url": form.get("url", "").strip(), "description": form.get("description", ""), "topics": _topics(form),
        "filter": read("filter", _filter), "policy": policy, "max_in_flight": read("max_in_flight", _whole),
        "rate_limit": read("rate_limit", _rate), "gzip": "gzip" in form,
    } | {name: form.get(name, "") for name in _CHOICES}  # fmt: skip
    if headers or "without_headers" in form:
        body["headers"] = headers
    if wrong:
        raise Problem(422, "invalid_body", "the settings are invalid: see below", wrong)
    return body


def _topics(form: Form) -> list[str]:
    """Those that are ticked, and those that are written, one on a line."""
    written = (line.strip() for line in form.get("patterns", "").splitlines())
    return [*form.getlist("topic"), *filter(None, written)]


def _filter(text: str) -> Any:
    if not text:
        return None
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        raise ValueError('is not JSON: write an object such as {"data": {"minutes": {"$gte": 30}}}') from None


def _headers(text: str) -> dict[str, str]:
    headers = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            # What follows may be a password: the line is not shown.
            raise ValueError("write each header on a line of its own, as Name: value")
        headers[name.strip()] = value.strip()
    return headers


def _pauses(text: str) -> list[float]:
    parts: Iterable[str] = filter(None, (part.strip() for part in text.split(",")))
    return [_duration(part).total_seconds() for part in parts]


def _seconds(text: str) -> float:
    return _duration(text).total_seconds()


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidValue as error:
        raise ValueError(str(error)) from None


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:  # noqa: PLR2004 - digits
        raise ValueError("is a whole number")
    return int(text)


def _rate(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError("is a number, or empty for no limit") from None
