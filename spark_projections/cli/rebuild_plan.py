"""``projections rebuild --dry-run``: what a rebuild would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from rich.table import Table

from journal import Session
from projections.terminal.options import echo_json
from projections.terminal.output import print_table, shown
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.definition import rebuildable
from spark_projections.rebuilds.options import RebuildOptions

__all__ = ["RebuildPlan", "plan_of", "show_plan"]

_COUNTS = """
SELECT coalesce(sum(s.seq_nr), 0)::bigint AS events, count(*) AS sources FROM projections.sources AS s
WHERE s.entity_type = $1 AND s.slice BETWEEN $2 AND $3
"""


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What a rebuild would do."""

    projection: str
    version: str
    slices: str
    events: int
    sources: int
    method: str
    tables: dict[str, str]
    in_the_way: list[str]
    unfinished: str | None


async def plan_of(session: Session, definition: Any, options: RebuildOptions) -> RebuildPlan:
    """What a rebuild with these options would do; changes nothing."""
    projection, written = rebuildable(definition, options.slices)
    row = await session.fetchrow(_COUNTS, projection.entity_type, *options.slices)
    assert row is not None  # noqa: S101 - an aggregate has one row
    known = await session.fetchrow(
        "SELECT projection_id, version FROM projections.projections WHERE name = $1", projection.name
    )
    begun = await bookkeeping.unfinished(session, known["projection_id"]) if known else None
    in_the_way = await bookkeeping.unfit_for_rename(session, written)
    return RebuildPlan(
        projection=projection.name,
        version=f"{known['version'] if known else 'none'} -> {projection.version}",
        slices=str(options.slices),
        events=row["events"],
        sources=row["sources"],
        method=options.method,
        tables={
            str(one): "combined of what sources share" if one.shared else "a source's own rows"
            for one in written
        },
        in_the_way=in_the_way if options.method == "rename" else [],
        unfinished=f"{begun.state} since {begun.started_at:%Y-%m-%d %H:%M:%S %Z}" if begun else None,
    )


def show_plan(plan: RebuildPlan, *, as_json: bool) -> None:
    """Print it."""
    values = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
    if as_json:
        echo_json(**values)
        return
    table = Table(show_header=False, title="Would rebuild")
    for key, value in values.items():
        table.add_row(key, "; ".join(value) or "-" if isinstance(value, list) else shown(value))
    print_table(table)
    if plan.in_the_way:
        click.echo("with --in-place, rows are replaced instead of tables", err=True)
