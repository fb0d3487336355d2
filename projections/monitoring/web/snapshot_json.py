"""What was seen, as the JSON that the page reads: times in seconds since 1970, columns of slices run-length encoded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

import offsets
from projections.monitoring.holding_back import HeldBack
from projections.monitoring.lag import ProjectionLag, RangeLag
from projections.monitoring.overview import Overview, ProjectionLine, Unreached
from projections.monitoring.under_way import JournalRead, UnfinishedRebuild
from projections.monitoring.web.history import LagHistory, Point

DEAD_LISTED = 20
"""Dead letters that the page lists of one thing, such as a group; the others are counted."""

LISTED = 100
"""The most parked sources that the page lists of a projection, and of anything else; the others are counted."""
_TEXT = 2000
"""Characters of an error that are shown."""
_TRACE = 4000
"""Of a traceback: its end says where and why."""
_STATEMENT = 20_000
"""Of a statement of a read model."""


class Kept(NamedTuple):
    """What the database keeps of a projection for people."""

    parked: Sequence[offsets.ParkedSource]
    changes: Sequence[offsets.RangeChange]
    read_models: Sequence[offsets.NotedReadModel]


def live(seen: Overview, points: LagHistory, every: float, others: Mapping[str, Any]) -> bytes:
    """
    What is sent each time: all projections in a line each, and whatever else there is.

    Args:
        seen: The newest look at the database.
        points: With the point that was made of it.
        every: Seconds to the next one.
        others: What there is alongside the projections.
    """
    return encoded(
        at=seconds(seen.at),
        every=every,
        vacancies=[shown(one, "role text start") for one in seen.vacancies[:LISTED]],
        projections=[
            *(_line(found, points.rate(found.projection_id)) for found in seen.projections),
            *map(_unreached, seen.unreached),
        ],
        workers=[_worker(worker) for worker in seen.workers],
        writers=[shown(writer, "pid application_name age") for writer in seen.writers],
        rebuilds=[_rebuild(one) for one in seen.rebuilds[:LISTED]],
        journals=[_journal(one) for one in seen.journals[:LISTED]],
        **others,
    )


def failure(reason: str) -> bytes:
    """What is sent when the database cannot be asked."""
    return encoded(error=reason)


def _line(found: ProjectionLine, rate: float) -> dict[str, Any]:
    return {
        "id": found.projection_id,
        **shown(found.summary, "name version mode journal"),
        "reads": str(found.summary.entity_types)[:_TEXT],
        "state": found.state,
        "states": found.states,
        "trouble": found.in_trouble,
        "internal": found.internal,
        "lag": _rounded(found.lag),
        "backlog": found.waits.backlog,
        "rate": round(rate, 1),
        "handled": found.handled,
        "parked": found.waits.parked,
        "ranges": sum(found.ranges_in.values()),
        "workers": len(found.owners),
    }


def _unreached(found: Unreached) -> dict[str, Any]:
    return {
        **shown(found, "name journal reason"),
        "state": "unreachable",
        "states": "unreachable",
        "trouble": True,
    }


def _rebuild(one: UnfinishedRebuild) -> dict[str, Any]:
    first, last = one.slices
    names = "name version state started_at parts parts_done events error led remaining"
    return {"first": first, "last": last, **shown(one, names)}


def _journal(one: JournalRead) -> dict[str, Any]:
    return {
        **shown(one, "name kind place"),
        "entity_types": one.entity_types[:LISTED],
        "readers": one.readers[:LISTED],
        "readers_total": len(one.readers),
    }


def detail(
    found: ProjectionLag,
    holds: Sequence[HeldBack],
    points: Iterable[Point],
    at: datetime,
    kept: Kept,
) -> dict[str, Any]:
    """
    What is sent of one projection.

    Args:
        found: The projection, with its slices.
        holds: The causes that hold it back, the worst first.
        points: Of its lines, those that the page does not have yet.
        at: The database's time.
        kept: What the database keeps of it for people.
    """
    return {
        "id": found.projection_id,
        "name": found.name,
        "at": seconds(at),
        "reads": str(found.entity_types),
        **shown(found, "journal version mode state states paused lag backlog handled"),
        "holds": [_hold(one) for one in holds],
        "points": [_point(one) for one in points],
        "ranges": [_range(part) for part in found.ranges],
        "slices": {
            "lag": _runs(_rounded(one.lag) for one in found.slices),
            "backlog": _runs(one.backlog for one in found.slices),
            "state": _runs(one.state for one in found.slices),
            "parked": _runs(one.parked for one in found.slices),
        },
        "parked": [_parked(one) for one in kept.parked[:LISTED]],
        "parked_total": max(len(kept.parked), found.parked),
        "changes": [
            shown(one, "changed_at kind ranges ranges_before taken_from taken_by") for one in kept.changes
        ],
        "read_models": [_read_model(one) for one in kept.read_models[:LISTED]],
    }


def _read_model(one: offsets.NotedReadModel) -> dict[str, Any]:
    return {**shown(one, "name table"), "text": one.text[:_STATEMENT]}


def _hold(one: HeldBack) -> dict[str, Any]:
    return {**shown(one, "cause text"), "slices": one.slices, "command": one.command}


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


def encoded(**values: Any) -> bytes:
    """A document."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
