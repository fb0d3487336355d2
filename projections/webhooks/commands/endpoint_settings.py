"""What the owner of an endpoint says about it, as options of ``add`` and ``change``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Annotated, Any, Literal

import click

from projections.durations import Duration
from projections.terminal.commands import Opt
from projections.terminal.options import json_object_of
from projections.webhooks.endpoints import Ordering
from projections.webhooks.retry_policy import RetryPolicy, parse_policy

_NONE = "none"
_DURATION = Duration()
_POLICY = ("retry", "timeout", "disable_after_failures", "disable_after", "policy")


def _json(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    return value if value == _NONE else json_object_of(context, parameter, value)


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
        raise click.BadParameter(f"{value!r} is not a number; write none for no limit") from None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an endpoint; those that are left out stay as they are."""

    topics: Annotated[
        tuple[str, ...],
        Opt(
            "Topics: flight.delayed, flight.* for one segment more, flight.** for any; may be repeated. Default: all.",
            "--topic", metavar="TOPIC",
        ),
    ] = ()  # fmt: skip
    filter: Annotated[
        Any,
        Opt(
            'Which events of these, such as {"data": {"minutes": {"$gte": 30}}}.',
            callback=_json, metavar="JSON|@FILE|none",
        ),
    ] = None  # fmt: skip
    description: Annotated[str | None, Opt("What it is for.", metavar="TEXT")] = None
    headers: Annotated[
        tuple[str, ...],
        Opt(
            "Sent with each request; may be repeated.", "--header", callback=_header, metavar="'NAME: VALUE'"
        ),
    ] = ()
    retry: Annotated[
        str | None,
        Opt(
            "Pauses after failed attempts, such as 5s,5m,2h; then it is a dead letter. Default: nine, over three days.",
            callback=_pauses, metavar="DURATION,DURATION...|none",
        ),
    ] = None  # fmt: skip
    timeout: Annotated[timedelta | None, Opt("For a whole attempt, 1s to 60s. Default: 15s.")] = None
    disable_after_failures: Annotated[
        Any,
        Opt("Failed attempts in a row that disable it. Default: 100.", callback=_number, metavar="N|none"),
    ] = None
    disable_after: Annotated[
        timedelta | Literal["none"] | None,
        Opt(
            "Time of nothing but failures that disables it. Default: 5d.",
            type=Duration(word=_NONE),
            metavar="DURATION|none",
        ),
    ] = None
    policy: Annotated[
        Any,
        Opt(
            'More of its retry policy, times in seconds, such as {"jitter": 0.1, "breaker_failures": 5}.',
            callback=_json, metavar="JSON|@FILE",
        ),
    ] = None  # fmt: skip
    max_in_flight: Annotated[
        int | None,
        Opt(
            "Requests on their way at a time, over all processes. Default: 10.", type=click.IntRange(1, 1000)
        ),
    ] = None
    rate_limit: Annotated[
        Any,
        Opt("Requests in a second, over all processes. Default: none.", callback=_number, metavar="N|none"),
    ] = None
    ordering: Annotated[
        Ordering | None,
        Opt("What goes one after the other: nothing (the default), what has the same key, or everything."),
    ] = None
    on_dead: Annotated[
        Literal["skip", "block"] | None,
        Opt(
            "After a dead letter, send the next delivery of its order (skip, the default), or hold it (block)."
        ),
    ] = None
    when_disabled: Annotated[
        Literal["keep", "discard"] | None,
        Opt("Keep the events that come while the endpoint is disabled (the default), or discard them."),
    ] = None
    gzip: Annotated[bool | None, Opt("Compress what is sent. Default: no.", "--gzip/--no-gzip")] = None

    def changes(self, policy: RetryPolicy) -> dict[str, Any]:
        """The settings that were given; options of the policy change this one."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        given = {name: value for name, value in named.items() if value not in (None, ())}
        changes = {name: _cleared(value) for name, value in given.items() if name not in _POLICY}
        if any(name in given for name in _POLICY):
            values = policy.model_dump(mode="json") | given.get("policy", {})
            if "retry" in given:
                values["schedule"] = given["retry"]
            for name in ("timeout", "disable_after_failures", "disable_after"):
                if name in given:
                    values[name] = _cleared(given[name])
            changes["policy"] = parse_policy(values)
        return changes


def _cleared(value: Any) -> Any:
    return None if value == _NONE else value
