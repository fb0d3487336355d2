"""
Who holds which slices, in the database: heartbeats, assignment, and cutting the slices again.

A range has an owner, who holds it while its lease runs, and a worker that it is assigned to, who is to hold it. The
owner gives up what is assigned to another; whoever a free range is assigned to claims it with its next heartbeat.
Heartbeats assign, in SQL: a worker needs nothing but these functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from journal import EntityTypes, Session, SliceRange
from journal.schema import compare_version
from offsets.store import Beats, Claim

_HEARTBEAT = """
SELECT h.*, (SELECT max(v.version) FROM projections.schema_versions AS v) AS schema_version
FROM projections.heartbeat_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS h
"""
_LEAVE = "SELECT projections.leave_v1($1)"
_TAKE_OVER = "SELECT projections._take_over_v1($1, $2, $3)"
_RANGES = """
SELECT
    r.projection_id, r.min_slice, r.max_slice, r.epoch, r.owner, r.assigned_to, r.claimed_at, r.horizon,
    r.handled_until, r.handled_at, r.handled, r.failures, r.error, r.restarts_at,
    w.lease_until, coalesce(w.lease_until > clock_timestamp(), FALSE) AS alive, r.import_id
FROM projections.projection_ranges AS r LEFT JOIN projections.workers AS w ON r.owner = w.owner
WHERE r.projection_id = ANY($1) ORDER BY r.projection_id, r.min_slice
"""
_WORKERS = """
WITH held AS MATERIALIZED (
    SELECT r.owner, r.projection_id, count(*) AS ranges, sum(r.max_slice - r.min_slice + 1)::integer AS slices
    FROM projections.projection_ranges AS r WHERE r.owner IS NOT NULL GROUP BY r.owner, r.projection_id
)
SELECT
    w.owner, w.host, w.pid, w.joined_at, w.lease_until, w.lease_until > clock_timestamp() AS alive, w.leaving,
    coalesce(sum(h.ranges), 0)::integer AS ranges,
    array_agg(projections._part_name_v1(p.name, p.journal) ORDER BY p.name, p.projection_id)
        FILTER (WHERE p.projection_id IS NOT NULL) AS projections,
    array_agg(coalesce(h.slices, 0) ORDER BY p.name, p.projection_id)
        FILTER (WHERE p.projection_id IS NOT NULL) AS slices
FROM projections.workers AS w
LEFT JOIN projections.projections AS p ON p.projection_id = ANY(w.projection_ids)
LEFT JOIN held AS h ON h.owner = w.owner AND h.projection_id = p.projection_id
WHERE w.group_id IS NULL GROUP BY w.owner ORDER BY w.joined_at, w.owner
"""


_NONE = timedelta(0)


class LeaseSettings(BaseModel):
    """How long a process holds its ranges without a heartbeat; the settings of each kind of process add their own."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    lease: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """How long a crashed process keeps others from its ranges. Safety does not depend on it."""

    heartbeat: timedelta = Field(default=timedelta(seconds=3), gt=_NONE)
    """How often the lease is prolonged, and processes that came or went, and ranges cut again, are noticed."""

    @model_validator(mode="after")
    def _lease_outlasts_heartbeats(self) -> Self:
        if self.heartbeat * 2 > self.lease:
            raise ValueError(
                f"a lease of {self.lease.total_seconds():g} s does not outlast two heartbeats, one every "
                f"{self.heartbeat.total_seconds():g} s: ranges would move all the time"
            )
        return self


class Worker(NamedTuple):
    """
    A process that runs projections, as the others know it.

    Args:
        owner: Its name, unique over all time.
        host: The machine.
        pid: The process there.
    """

    owner: str
    host: str
    pid: int


class Registered(NamedTuple):
    """A projection as a worker runs it: its number alone may be another's in a database that went back in time."""

    name: str
    version: int
    """Of its code."""
    entity_types: EntityTypes
    """What its code reads."""


class Held(NamedTuple):
    """A range that a worker owns."""

    claim: Claim
    kept: bool
    """Whether it is assigned to its owner, or to be given up."""
    taken_from: str | None
    """The dead owner that this heartbeat has taken it from."""


class Heartbeat(NamedTuple):
    """What a worker learns of one of its projections."""

    projection_id: int
    version: int
    """Which version of its code the projection runs: a worker of another is given no range."""
    entity_types: EntityTypes
    """What it reads: a worker whose code reads anything else is given no range either."""
    paused: bool
    decided: bool
    """Whether somebody has decided about a parked source."""
    uneven: bool
    """Whether the ranges are still to be assigned: somebody has the projection locked."""
    awaited: int
    """How many ranges are assigned to it, and still another's."""
    others_horizon: datetime | None
    """The oldest horizon among the ranges that it does not own; None when it owns all."""
    held: list[Held]


class RangeStatus(NamedTuple):
    """A slice range as the database has it."""

    slices: SliceRange
    epoch: int
    owner: str | None
    assigned_to: str | None
    claimed_at: datetime | None
    horizon: datetime
    handled_until: datetime
    """The newest timestamp of an event that was handled."""
    handled_at: datetime | None
    """When the last batch was committed."""
    handled: int
    """Events handled since the projection was made; exact over all ranges, for a cut leaves it to one of the parts."""
    failures: int
    """Failures in a row."""
    error: str | None
    restarts_at: datetime | None
    lease_until: datetime | None
    alive: bool
    """Whether it is owned, and the lease runs."""
    import_id: int = 0
    """The last import that the horizon accounts for."""


class WorkerStatus(NamedTuple):
    """A worker as the database has it."""

    owner: str
    host: str
    pid: int
    joined_at: datetime
    lease_until: datetime
    alive: bool
    leaving: bool
    ranges: int
    slices: dict[str, int]
    """How many slices it holds of each projection that it runs."""


async def heartbeat(
    session: Session,
    worker: Worker,
    lease: timedelta,
    projections: Mapping[int, Registered],
    beats: Beats,
    *,
    leaving: bool = False,
) -> list[Heartbeat]:
    """
    Say that a worker is alive, assign ranges where that is due, and claim what is assigned to it and free.

    Args:
        session: Outside a transaction.
        worker: The worker, by the name it gave itself.
        lease: How long it counts as alive without another heartbeat.
        projections: The projections that it runs, by number.
        beats: Its heartbeats so far; says afterwards whether the database went back in time.
        leaving: It takes nothing new, and what it has is assigned to others.

    Returns:
        One for each projection that the database knows.

    Raises:
        OtherSchemaVersion: Somebody has upgraded the schema, or restored an older one.
    """
    beats.sent += 1
    sent, answered = beats.sent, beats.answered
    names = [one.name for one in projections.values()]
    versions = [one.version for one in projections.values()]
    types = [one.entity_types.literal for one in projections.values()]
    rows = await session.fetch(
        _HEARTBEAT, *worker, lease, list(projections), names, versions, leaving, answered, sent, types
    )
    beats.went_back = any(row["went_back"] for row in rows)
    beats.answered = 0 if beats.went_back else sent
    for row in rows[:1]:
        if row["schema_version"] is not None:  # none while it is being restored
            compare_version(row["schema_version"])
    columns = (
        "min_slices", "max_slices", "epochs", "horizons", "import_ids", "commits", "kept", "taken_from",
    )  # fmt: skip
    return [
        Heartbeat(
            number := row["projection_id"], row["version"], EntityTypes.stored(row["entity_types"]), row["paused"],
            row["decided"], row["uneven"], row["awaited"], row["others_horizon"],
            [
                Held(
                    Claim(number, SliceRange(low, high), epoch, horizon, import_id, commits, worker.owner),
                    kept,
                    taken_from,
                )
                for low, high, epoch, horizon, import_id, commits, kept, taken_from in zip(
                    *(row[c] or () for c in columns), strict=True
                )
            ],
        )
        for row in rows if row["version"] is not None
    ]  # fmt: skip


async def leave(session: Session, owner: str) -> None:
    """End a worker: whatever it still owns is free."""
    await session.execute(_LEAVE, owner)


async def take_over(session: Session, owner: str, projections: Mapping[int, int]) -> None:
    """Take projections, each of a version, from whoever runs them, alive or not."""
    await session.execute(_TAKE_OVER, owner, list(projections), list(projections.values()))


async def read_ranges(session: Session, projection_ids: Sequence[int]) -> dict[int, list[RangeStatus]]:
    """The ranges of projections, in order."""
    found: dict[int, list[RangeStatus]] = {number: [] for number in projection_ids}
    for row in await session.fetch(_RANGES, list(projection_ids)):
        number, first, last, *rest = row.values()
        found[number].append(RangeStatus(SliceRange(first, last), *rest))
    return found


async def runs(session: Session, name: str) -> bool:
    """Whether a worker is alive that runs a projection, or its part that reads a journal (``NAME@JOURNAL``)."""
    known = [one for worker in await workers(session) if worker.alive for one in worker.slices]
    return any(name in {one, one.partition("@")[0]} for one in known)


async def workers(session: Session) -> list[WorkerStatus]:
    """The workers that are alive, and those that were in the last hour, in the order in which they joined."""
    found = []
    for row in await session.fetch(_WORKERS):
        *known, projections, slices = row.values()
        held = dict(zip(projections or (), slices or (), strict=True))
        found.append(WorkerStatus._make([*known, held]))
    return found
