"""A snapshot as the JSON that the page reads: times in seconds since 1970, columns of slices run-length encoded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import offsets
from projections.monitoring.lag import ProjectionLag, RangeLag
from projections.monitoring.snapshot import Snapshot
from projections.monitoring.web.history import LagHistory, Point

DEAD_LISTED = 20
"""Dead letters that the page lists of one thing, such as a group; the others are counted."""

LISTED = 100
"""The most parked sources that the page lists of a projection, and of anything else; the others are counted."""
_TEXT = 2000
"""Characters of an error that are shown."""
_TRACE = 1000
"""Of a traceback: its end says where and why."""


def live(
    snapshot: Snapshot,
    points: LagHistory,
    parked: Mapping[str, Sequence[offsets.ParkedSource]],
    every: float,
    others: Mapping[str, Any],
) -> bytes:
    """
    What is sent each time.

    Args:
        snapshot: The newest snapshot of the database.
        points: With the point that was made of it.
        parked: The sources that wait, by projection.
        every: Seconds to the next one.
        others: What there is beside the projections.
    """
    return _encoded(
        at=seconds(snapshot.at),
        every=every,
        projections=[
            _projection(found, parked.get(found.name, ()), points.points(found.projection_id))
            for found in snapshot.projections
        ],
        workers=[_worker(worker) for worker in snapshot.workers],
        unreached=[f"{name}: {why}" for name, why in snapshot.unreached.items()],
        writers=[shown(writer, "pid application_name age") for writer in snapshot.writers],
        **others,
    )


def failure(reason: str) -> bytes:
    """What is sent when the database cannot be asked."""
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
        "entity_type": str(found.entity_types),
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
    names = "handled handled_at horizon assigned_to parked failures error restarts_at"
    return {**bounds(part), **shown(part, names)}


def bounds(part: Any) -> dict[str, Any]:
    """What the page has of any range: its slices, how far it is behind, and who holds it."""
    first, last = part.slices
    return {"first": first, "last": last, **shown(part, "state lag backlog owner alive epoch")}


def _parked(one: offsets.ParkedSource) -> dict[str, Any]:
    names = "source_id seq_nr event_type error attempts parked_at decision"
    return {**shown(one, names), "traceback": one.traceback and one.traceback[-_TRACE:]}


def _worker(worker: offsets.WorkerStatus) -> dict[str, Any]:
    times = {"joined_at": seconds(worker.joined_at), "lease_until": seconds(worker.lease_until)}
    return {**worker._asdict(), **times}


def shown(found: object, names: str) -> dict[str, Any]:
    """Some fields as the page has them: times in seconds, a lag rounded, texts of a bounded length."""
    values = {name: getattr(found, name) for name in names.split()}
    for name, value in values.items():
        if isinstance(value, datetime):
            values[name] = seconds(value)
        elif isinstance(value, str):
            values[name] = value[:_TEXT]
        elif name == "lag":
            values[name] = _rounded(value)
    return values


def _point(point: Point) -> list[float]:
    return [round(point.at.timestamp(), 3), round(point.lag, 3), round(point.rate, 1)]


def _runs(values: Iterable[Any]) -> list[Any]:
    """``[value, count, value, count, ...]``: a quiet projection's 1,024 slices are a few bytes."""
    return [part for value, group in groupby(values) for part in (value, len(list(group)))]


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def seconds(time: datetime | None) -> float | None:
    """A time as the page has it."""
    return None if time is None else round(time.timestamp(), 3)


def _encoded(**values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
