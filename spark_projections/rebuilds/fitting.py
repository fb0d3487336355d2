"""Whether new tables can take the place of those that a projection has: asked before anything is folded."""

from __future__ import annotations

from collections.abc import Sequence

from journal import Session
from projections.defining import Projection
from spark_projections.errors import NotRebuildable
from spark_projections.rebuilds.bookkeeping import find_table
from spark_projections.rebuilds.definition import WrittenTable
from spark_projections.rebuilds.shadow import schema_of, staged_columns

_UNFIT = "SELECT projections._unfit_for_rename_v1($1::oid::regclass, $2)"
_DIFFERENCES = """
SELECT t.schema_name || '.' || t.table_name AS name, projections._clone_differences_v1(
    t.table_oid::regclass, format('%I.%I', $2::text, t.table_name)::regclass
) AS reasons
FROM projections.rebuild_tables AS t WHERE t.rebuild_id = $1 ORDER BY t.place
"""


async def unfit_for_rename(session: Session, written: Sequence[WrittenTable]) -> list[str]:
    """What would stay with the old tables, or be lost with them."""
    reasons: list[str] = []
    for one in written:
        oid = await find_table(session, one)
        declared = None if one.table is None else list(staged_columns(one.table))
        found = await session.fetchval(_UNFIT, oid, declared)
        reasons += [f"table {one}: {reason}" for reason in found]
    return reasons


async def refuse_unfit(session: Session, projection: Projection, written: Sequence[WrittenTable]) -> None:
    """NotRebuildable: something would stay with the old tables, or be lost with them."""
    _refuse(projection, await unfit_for_rename(session, written))


async def refuse_not_copied(session: Session, projection: Projection, rebuild_id: int) -> None:
    """NotRebuildable: the tables of a rebuild that has just begun are not in all what the old ones are."""
    rows = await session.fetch(_DIFFERENCES, rebuild_id, schema_of(rebuild_id))
    _refuse(projection, [f"table {row['name']}: {reason}" for row in rows for reason in row["reasons"]])


def _refuse(projection: Projection, reasons: Sequence[str]) -> None:
    if reasons:
        raise NotRebuildable(
            f"new tables cannot take the place of those of projection {projection.name!r}: {'; '.join(reasons)}. "
            "Replace their rows instead: --in-place"
        )
