"""``projections status``, ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import click
from rich.table import Table

import offsets
from journal import BEGINNING, Session, has_events, slice_of
from projections.cli.connection import visit
from projections.cli.offsets import statuses
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.output import print_table

__all__ = ["pause", "resume", "status"]

_NOW = "SELECT clock_timestamp()"


class _Report(NamedTuple):
    status: offsets.ProjectionStatus
    now: datetime
    parked: Sequence[offsets.ParkedSource]
    has_events: bool


@click.command()
@click.argument("name", required=False)
@dsn_option
@json_option
def status(name: str | None, dsn: str | None, as_json: bool) -> None:
    """
    Show who runs the ranges of each projection, and how far they are.

    Lag is the time since the horizon, before which everything is handled. A worker stores the horizon with every
    batch, and about every 10 seconds while nothing comes.
    """
    reports = visit(dsn, lambda session: _reports(session, name))
    if as_json:
        echo_json(projections=[_values(report) for report in reports])
        return
    table = Table("projection", "state", "slices", "owner", "horizon", "lag", "parked")
    for report in reports:
        for part in report.status.ranges:
            table.add_row(
                report.status.name, _state(report), str(part.slices), _owner(part), *_progress(report, part)
            )
    print_table(table)


@click.command()
@click.argument("name")
@dsn_option
def pause(name: str, dsn: str | None) -> None:
    """Pause a projection after the batches at hand. It stays paused over restarts, until it is resumed."""
    visit(dsn, lambda session: offsets.set_paused(session, name, paused=True))
    click.echo(f"projection {name!r} is paused")


@click.command()
@click.argument("name")
@dsn_option
def resume(name: str, dsn: str | None) -> None:
    """Let a paused projection go on."""
    visit(dsn, lambda session: offsets.set_paused(session, name, paused=False))
    click.echo(f"projection {name!r} goes on")


async def _reports(session: Session, name: str | None) -> list[_Report]:
    now = await session.fetchval(_NOW)
    reports = []
    for found in await statuses(session, name):
        parked = await offsets.parked(session, found.name)
        reports.append(_Report(found, now, parked, await has_events(session, found.entity_type)))
    return reports


def _state(report: _Report) -> str:
    if not report.has_events:
        return f"no events of type {report.status.entity_type!r}"
    if report.status.paused:
        return "paused"
    return "running" if all(part.alive for part in report.status.ranges) else "not running"


def _owner(part: offsets.RangeStatus) -> str:
    if part.owner is None:
        return "nobody"
    return part.owner if part.alive else f"{part.owner} (lease ended)"


def _lag(report: _Report, part: offsets.RangeStatus) -> float:
    return max((report.now - part.horizon).total_seconds(), 0.0)


def _progress(report: _Report, part: offsets.RangeStatus) -> tuple[str, str, str]:
    parked = str(sum(slice_of(one.source_id) in part.slices for one in report.parked))
    if part.horizon <= BEGINNING:
        return "at the beginning", "", parked
    return f"{part.horizon:%Y-%m-%d %H:%M:%S}", f"{_lag(report, part):,.1f} s", parked


def _values(report: _Report) -> dict[str, object]:
    found = report.status
    return {
        "name": found.name,
        "entity_type": found.entity_type,
        "has_events": report.has_events,
        "paused": found.paused,
        "parked": len(report.parked),
        "ranges": [
            {
                "min_slice": part.slices.min_slice,
                "max_slice": part.slices.max_slice,
                "owner": part.owner,
                "alive": part.alive,
                "epoch": part.epoch,
                "horizon": part.horizon.isoformat(),
                "lag_seconds": _lag(report, part),
            }
            for part in found.ranges
        ],
    }
