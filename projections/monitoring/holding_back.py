"""What holds a projection back, and what somebody can do about it: read off what a look at it has seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from journal import ALL_SLICES, SliceRange
from projections.monitoring.lag import ProjectionLag, RangeLag, State
from projections.monitoring.snapshot import OpenWriter
from projections.terminal.ages import age

OPEN_LONG = 1.0
"""Seconds for which a transaction may be open before it is worth a line."""
_ERRORS = 5
_ERROR_CHARACTERS = 300


class Cause(StrEnum):
    """Why a projection does not handle what is there."""

    PAUSED = "paused"
    NO_WORKER = "no worker"
    FAILED = "failed"
    PARKED = "parked"
    MOVING = "moving"
    """Ranges go from one worker to another."""
    OPEN_TRANSACTION = "open transaction"
    BUSY = "busy"
    """Nothing is wrong: there is more than has been handled yet."""


class HeldBack(NamedTuple):
    """One thing that holds slices of a projection back."""

    cause: Cause
    text: str
    slices: Sequence[SliceRange]
    command: Sequence[str] = ()
    """Words of a command line that does something about it; words in capitals are to be filled in."""


def held_back(
    found: ProjectionLag, writers: Sequence[OpenWriter], at: datetime, rate: float = 0.0
) -> list[HeldBack]:
    """
    What holds a projection back, the worst first; nothing where it has handled all that is there.

    Args:
        found: The projection.
        writers: Transactions that have appended and not ended to the journal that it reads.
        at: The database's time of the look.
        rate: Events a second that it has handled of late.
    """
    causes = [*_not_running(found, at), *_parked(found, at), *_moving(found), *_writers(writers)]
    if found.backlog and not any(one.cause is not Cause.OPEN_TRANSACTION for one in causes):
        causes.append(HeldBack(Cause.BUSY, _busy(found.backlog, rate), _merged(_behind(found))))
    return causes


def _not_running(found: ProjectionLag, at: datetime) -> Iterator[HeldBack]:
    if found.paused:
        yield HeldBack(
            Cause.PAUSED, "Somebody has paused it.", [ALL_SLICES], ["projections", "resume", found.name]
        )
        return
    free = [part for part in found.ranges if part.state is State.UNCLAIMED]
    if free:
        gone = sorted({part.owner for part in free if part.owner is not None})
        owners = f" Their owner is gone: {', '.join(gone[:_ERRORS])}." if gone else ""
        yield HeldBack(
            Cause.NO_WORKER,
            f"No worker holds {_ranges(free, found)}.{owners}",
            _merged(free),
            ["projections", "worker", "MODULE"],
        )
    failing = sorted(
        (one for one in found.ranges if one.state is State.RESTARTING), key=lambda one: str(one.error)
    )
    by_error = [[*parts] for _, parts in groupby(failing, lambda one: one.error)]
    for parts in sorted(by_error, key=len, reverse=True)[:_ERRORS]:
        yield HeldBack(Cause.FAILED, _failed(parts, found, at), _merged(parts))


def _failed(parts: Sequence[RangeLag], found: ProjectionLag, at: datetime) -> str:
    most = max(part.failures for part in parts)
    times = "once" if most == 1 else f"{most} times in a row"
    waits = [(part.restarts_at - at).total_seconds() for part in parts if part.restarts_at is not None]
    when = f"starts again in {age(min(waits))}" if waits and min(waits) > 0 else "is to start again"
    what = _ranges(parts, found)
    return f"{what[0].upper()}{what[1:]}: failed {times}, {when}: {str(parts[0].error)[:_ERROR_CHARACTERS]}"


def _parked(found: ProjectionLag, at: datetime) -> Iterator[HeldBack]:
    if not found.parked:
        return
    since = found.parked_since
    longest = "" if since is None else f", one for {age(max((at - since).total_seconds(), 0.0))}"
    what = "1 source waits" if found.parked == 1 else f"{found.parked:,} sources wait"
    yield HeldBack(
        Cause.PARKED,
        f"{what} at an event that could not be handled{longest}. All other sources go on.",
        _merged([part for part in found.ranges if part.parked]),
        ["projections", "parked", "list", found.name],
    )


def _moving(found: ProjectionLag) -> Iterator[HeldBack]:
    moving = [part for part in found.ranges if part.alive and part.assigned_to not in {None, part.owner}]
    if moving and not found.paused:
        yield HeldBack(
            Cause.MOVING,
            f"Another worker takes over {_ranges(moving, found)} after the current batch.",
            _merged(moving),
        )


def _writers(writers: Sequence[OpenWriter]) -> Iterator[HeldBack]:
    for one in writers[:_ERRORS]:
        if one.age > OPEN_LONG:
            who = "a prepared transaction" if one.pid is None else f"process {one.pid}"
            what = f"A transaction that has appended is open for {age(one.age)}"
            text = (
                f"{what}: {one.application_name or 'unnamed'}, {who}. What it may still commit is waited for; all else "
                "is handled."
            )
            yield HeldBack(Cause.OPEN_TRANSACTION, text, [ALL_SLICES])


def _busy(backlog: int, rate: float) -> str:
    left = f", about {age(backlog / rate)} at the current rate" if rate > 0 else ""
    what = "1 event is" if backlog == 1 else f"{backlog:,} events are"
    return f"Nothing: {what} to be handled{left}."


def _behind(found: ProjectionLag) -> list[RangeLag]:
    return [part for part in found.ranges if part.backlog]


def _ranges(parts: Sequence[RangeLag], found: ProjectionLag) -> str:
    if len(parts) == len(found.ranges):
        return "any range" if len(parts) > 1 else "its range"
    slices = _merged(parts)
    some = ", ".join(str(one) for one in slices[:_ERRORS]) + (", …" if len(slices) > _ERRORS else "")
    return f"{len(parts):,} of {len(found.ranges):,} ranges (slices {some})"


def _merged(parts: Sequence[RangeLag]) -> list[SliceRange]:
    """The slices of ranges, neighbours as one."""
    merged: list[SliceRange] = []
    for first, last in sorted(part.slices for part in parts):
        if merged and merged[-1].max_slice == first - 1:
            merged[-1] = SliceRange(merged[-1].min_slice, last)
        else:
            merged.append(SliceRange(first, last))
    return merged
