"""``projections rebuild --dry-run``: what a rebuild would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from journal import Session
from projections.terminal.answers import Answer
from projections.terminal.output import table_of_values
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.definition import rebuildable
from spark_projections.rebuilds.options import RebuildOptions

__all__ = ["RebuildPlan", "plan_answer", "plan_of"]

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


def plan_answer(plan: RebuildPlan) -> Answer:
    """The answer that shows it."""
    note = "with --in-place, rows are replaced instead of tables" if plan.in_the_way else None
    values = asdict(plan)
    return Answer(values, [table_of_values("Would rebuild", values)], note=note)
