"""What the owner of an endpoint says about it, as options of ``add`` and ``change``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from projections.terminal.durations import Duration
from projections.terminal.options import together
from projections.webhooks.commands.options import text_of
from projections.webhooks.verdicts import RetryPolicy, parse_policy

__all__ = ["changes_of", "settings_options"]

_NONE = "none"
_DURATION = Duration()
_POLICY = ("retry", "timeout", "disable_after_failures", "disable_after", "policy")


def _json(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    if value is None or value == _NONE:
        return value
    text = text_of(value)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{text[:80]!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{text[:80]!r} is no JSON object")
    return found


def _header(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str] | None:
    if _NONE in values:
        return {}
    headers = {}
    for value in values:
        name, colon, content = value.partition(":")
        if not colon or not name.strip():
            # What follows may be a password: the value is not shown.
            raise click.BadParameter("write a header as 'Name: value', or none for no headers")
        headers[name.strip()] = content.strip()
    return headers or None


def _pauses(context: click.Context, parameter: click.Parameter, value: str | None) -> list[float] | None:
    if value is None:
        return None
    pauses = [] if value == _NONE else value.split(",")
    return [_DURATION.convert(one.strip(), parameter, context).total_seconds() for one in pauses]


def _number(_: click.Context, __: click.Parameter, value: str | None) -> float | str | None:
    if value is None or value == _NONE:
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no number; write none for no limit") from None


settings_options = together(
    click.option(
        "--topic", "topics", multiple=True, metavar="TOPIC",
        help="Topics: flight.delayed, flight.* for one segment more, flight.** for any; by default all; repeatable.",
    ),
    click.option(
        "--filter", "filter", callback=_json, metavar="JSON|@FILE|none",
        help='Which events of these, such as {"data": {"minutes": {"$gte": 30}}}.',
    ),
    click.option("--description", metavar="TEXT", help="What it is for."),
    click.option(
        "--header", "headers", multiple=True, callback=_header, metavar="'NAME: VALUE'",
        help="Sent with each request; may be repeated.",
    ),
    click.option(
        "--retry", callback=_pauses, metavar="5s,5m,2h|none",
        help="Pauses after failed attempts; after the last one it is a dead letter. Default: nine, over three days.",
    ),
    click.option(
        "--timeout", type=_DURATION, help="For a whole attempt, 1s to 60s. Default: 15s."
    ),
    click.option(
        "--disable-after-failures", callback=_number, metavar="N|none",
        help="Failed attempts in a row that disable it. Default: 100.",
    ),
    click.option(
        "--disable-after", type=Duration(word=_NONE), metavar="5d|none",
        help="Time of nothing but failures that disables it. Default: 5d.",
    ),
    click.option(
        "--policy", callback=_json, metavar="JSON|@FILE",
        help='More of its retry policy, times in seconds, such as {"jitter": 0.1, "breaker_failures": 5}.',
    ),
    click.option(
        "--max-in-flight", type=click.IntRange(1, 1000),
        help="Requests on their way at a time, over all processes. Default: 10.",
    ),
    click.option(
        "--rate-limit", callback=_number, metavar="N|none",
        help="Requests in a second, over all processes. Default: none.",
    ),
    click.option(
        "--ordering", type=click.Choice(["none", "key", "endpoint"]),
        help="What goes one after the other: nothing (the default), what has the same key, or everything.",
    ),
    click.option(
        "--on-dead", type=click.Choice(["skip", "block"]),
        help="Whether a dead letter lets the next of its order go (the default), or holds it.",
    ),
    click.option(
        "--when-disabled", type=click.Choice(["keep", "discard"]),
        help="What becomes of events while it is disabled: kept for later (the default), or not.",
    ),
    click.option("--gzip/--no-gzip", default=None, help="Compress what is sent. Default: no."),
)  # fmt: skip


def changes_of(options: Mapping[str, Any], policy: RetryPolicy) -> dict[str, Any]:
    """
    The settings that options give; those that were left out are not among them.

    Args:
        options: As click has read them.
        policy: What the options of the policy change.

    Raises:
        InvalidEndpoint: The policy can not be so.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    changes = {name: _cleared(value) for name, value in given.items() if name not in _POLICY}
    if any(name in given for name in _POLICY):
        changes["policy"] = _changed(policy, given)
    return changes


def _changed(policy: RetryPolicy, given: Mapping[str, Any]) -> RetryPolicy:
    values = policy.model_dump(mode="json") | given.get("policy", {})
    if "retry" in given:
        values["schedule"] = given["retry"]
    for name in ("timeout", "disable_after_failures", "disable_after"):
        if name in given:
            values[name] = _cleared(given[name])
    return parse_policy(values)


def _cleared(value: Any) -> Any:
    return None if value == _NONE else value
