"""A snapshot as the JSON that the page reads: times in seconds since 1970, columns of slices run-length encoded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import offsets
from projections.monitoring import (
    DeadDelivery,
    GroupLag,
    GroupRangeLag,
    OpenWriter,
    ProjectionLag,
    QuarantinedCondition,
    RangeLag,
    Snapshot,
)
from projections.subscriptions import FailedBatch
from projections.web.history import LagHistory, Point
from projections.webhooks.stats import EndpointStats

__all__ = ["DEAD_LISTED", "LISTED", "failure", "history", "live"]

DEAD_LISTED = 20
"""Dead letters that the page lists of a group or an endpoint; the others are counted."""

LISTED = 100
"""Parked sources that the page lists of a projection, endpoints, and their dead letters; the others are counted."""
_TEXT = 2000
"""Characters of an error that are shown."""
_TRACE = 1000
"""Of a traceback: its end says where and why."""


def live(
    snapshot: Snapshot,
    points: LagHistory,
    parked: Mapping[str, Sequence[offsets.ParkedSource]],
    dead: Mapping[str, Sequence[FailedBatch]],
    every: float,
    *,
    endpoints: Sequence[EndpointStats] = (),
    dead_deliveries: Sequence[DeadDelivery] = (),
) -> bytes:
    """
    What is sent each time.

    Args:
        snapshot: What was seen.
        points: With the point that was made of it.
        parked: The sources that wait, by projection.
        dead: Dead letters, by group.
        every: Seconds to the next one.
        endpoints: Endpoints of webhooks that are listed.
        dead_deliveries: Dead letters of these that are listed.
    """
    return _encoded(
        at=_seconds(snapshot.at),
        every=every,
        projections=[
            _projection(found, parked.get(found.name, ()), points.points(found.projection_id))
            for found in snapshot.projections
        ],
        workers=[_worker(worker) for worker in snapshot.workers],
        writers=[_writer(writer) for writer in snapshot.writers],
        groups=[_group(found, dead.get(found.name, ())) for found in snapshot.groups],
        quarantined=[_quarantined(one) for one in snapshot.quarantined[:LISTED]],
        quarantined_total=len(snapshot.quarantined),
        unmatched=snapshot.unmatched[:LISTED],
        webhooks=snapshot.webhooks and snapshot.webhooks._asdict(),
        endpoints=[_endpoint(one) for one in endpoints],
        dead_deliveries=[_dead_delivery(one) for one in dead_deliveries],
    )


def failure(reason: str) -> bytes:
    """What is sent when the database can not be asked."""
    return _encoded(error=reason)


def history(points: LagHistory) -> bytes:
    """What a client is sent first: the lines until now, by the projection's id."""
    return _encoded(history={number: [_point(one) for one in kept] for number, kept in points.items()})


def _projection(
    found: ProjectionLag, parked: Sequence[offsets.ParkedSource], points: Sequence[Point]
) -> dict[str, Any]:
    return {
        "id": found.projection_id,
        "name": found.name,
        "entity_type": found.entity_type,
        "paused": found.paused,
        "lag": _rounded(found.lag),
        "backlog": found.backlog,
        "handled": found.handled,
        "point": _point(points[-1]) if points else None,
        "ranges": [_range(part) for part in found.ranges],
        "slices": {
            "lag": _runs(_rounded(one.lag) for one in found.slices),
            "backlog": _runs(one.backlog for one in found.slices),
            "state": _runs(one.state for one in found.slices),
            "parked": _runs(one.parked for one in found.slices),
        },
        "parked": [_parked(one) for one in parked[:LISTED]],
        "parked_total": max(len(parked), sum(one.parked for one in found.slices)),
    }


def _range(part: RangeLag) -> dict[str, Any]:
    return {
        "first": part.slices.min_slice,
        "last": part.slices.max_slice,
        "state": part.state,
        "lag": _rounded(part.lag),
        "backlog": part.backlog,
        "handled": part.handled,
        "handled_at": _seconds(part.handled_at),
        "horizon": _seconds(part.horizon),
        "owner": part.owner,
        "alive": part.alive,
        "assigned_to": part.assigned_to,
        "epoch": part.epoch,
        "parked": part.parked,
        "failures": part.failures,
        "error": part.error and part.error[:_TEXT],
        "restarts_at": _seconds(part.restarts_at),
    }


def _parked(one: offsets.ParkedSource) -> dict[str, Any]:
    shown = {"error": one.error[:_TEXT], "traceback": one.traceback and one.traceback[-_TRACE:]}
    values = {**one._asdict(), **shown, "parked_at": _seconds(one.parked_at)}
    del values["projection"]  # it is listed with it
    return values


def _worker(worker: offsets.WorkerStatus) -> dict[str, Any]:
    times = {"joined_at": _seconds(worker.joined_at), "lease_until": _seconds(worker.lease_until)}
    return {**worker._asdict(), **times}


def _writer(writer: OpenWriter) -> dict[str, Any]:
    return {
        "pid": writer.pid,
        "application_name": writer.application_name,
        "age": writer.age,
    }


def _group(found: GroupLag, dead: Sequence[FailedBatch]) -> dict[str, Any]:
    return {
        "id": found.group_id,
        "name": found.name,
        "reliable": found.reliable,
        "state": found.state,
        "lag": _rounded(found.lag),
        "backlog": found.backlog,
        "readers": found.readers,
        "without_reader": found.without_reader,
        "retries": found.retries,
        "dead": [_dead(one) for one in dead],
        "dead_total": found.dead,
        "ranges": [_group_range(part) for part in found.parts],
    }


def _group_range(part: GroupRangeLag) -> dict[str, Any]:
    return {
        "first": part.slices.min_slice,
        "last": part.slices.max_slice,
        "state": part.state,
        "lag": _rounded(part.lag),
        "backlog": part.backlog,
        "unmatched": part.unmatched,
        "cursor": part.cursor,
        "owner": part.owner,
        "alive": part.alive,
        "epoch": part.epoch,
        "moved_at": _seconds(part.moved_at),
        "handler": part.handler,
    }


def _dead(one: FailedBatch) -> dict[str, Any]:
    return {
        "id": one.retry_id,
        "handler": one.handler,
        "events": one.events,
        "attempts": one.attempts,
        "error": one.error[:_TEXT],
        "failed_at": _seconds(one.failed_at),
    }


def _quarantined(one: QuarantinedCondition) -> dict[str, Any]:
    return {
        "id": one.condition_id,
        "sql": one.sql[:_TEXT],
        "error": one.error[:_TEXT],
        "since": _seconds(one.since),
        "subscriptions": one.subscriptions,
        "groups": one.groups[:LISTED],
    }


def _endpoint(one: EndpointStats) -> dict[str, Any]:
    return {
        "id": one.endpoint_id,
        "tenant": one.tenant,
        "host": one.host,
        "verified": one.verified,
        "state": one.state,
        "reason": one.reason and one.reason[:_TEXT],
        "success": one.success,
        "attempts": one.attempts,
        "median": one.median,
        "slowest_percent": one.slowest_percent,
        "pending": one.pending,
        "waiting": one.waiting,
        "in_flight": one.in_flight,
        "dead": one.dead,
        "lag": _rounded(one.lag),
        "failures": one.failures,
        "failing_since": _seconds(one.failing_since),
        "blocked_until": _seconds(one.blocked_until),
    }


def _dead_delivery(one: DeadDelivery) -> dict[str, Any]:
    return {
        "id": one.delivery_id,
        "endpoint": one.endpoint_id,
        "event": one.event_id,
        "topic": one.topic,
        "attempts": one.attempts,
        "code": one.code,
        "died_at": _seconds(one.died_at),
    }


def _point(point: Point) -> list[float]:
    return [round(point.at.timestamp(), 3), round(point.lag, 3), round(point.rate, 1)]


def _runs(values: Iterable[Any]) -> list[Any]:
    """``[value, count, value, count, ...]``: a quiet projection's 1,024 slices are a few bytes."""
    return [part for value, group in groupby(values) for part in (value, len(list(group)))]


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else round(time.timestamp(), 3)


def _encoded(**values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
