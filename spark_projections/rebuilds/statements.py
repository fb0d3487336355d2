"""
Folding read models in SQL: a part of the journal by one statement for each, inside PostgreSQL.

What it computes of all events of a part is what it would have computed of them in batches; that is what makes a
statement one that can be kept up to date. Where an event is at fault, the part is folded by pages, which find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from journal import HISTORY, OwnedSession, SliceRange, event_type_of
from journal.database import quote
from projections.defining import Projection
from projections.running import ReadModelPlan, ReadModelWriter, mark_table
from spark_projections.rebuilds.definition import WrittenTable
from spark_projections.rebuilds.shadow import schema_of

_OFFSETS = """
INSERT INTO {schema}._offsets (source_id, slice, seq_nr, db_timestamp, events)
SELECT * FROM projections._last_events_v1($1, $2, $3, $4, $5)
"""
_FOLDED = (
    "SELECT coalesce(sum(o.events), 0)::bigint FROM {schema}._offsets AS o WHERE o.slice BETWEEN $1 AND $2"
)


class ShadowReadModels(ReadModelWriter):
    """Fills the tables of a rebuild: rows that sources share are staged, as those of table handlers are."""

    def __init__(self, rebuild_id: int, written: Sequence[WrittenTable]) -> None:
        schema = schema_of(rebuild_id)
        super().__init__(schema)
        self._schema_sql = quote(schema)
        self._staged = {
            one.table: quote(schema, f"_staged_{place}") for place, one in enumerate(written, 1) if one.shared
        }

    def sql(self, plan: ReadModelPlan, events: str) -> str:
        """The statement that brings events into a table."""
        staged = self._staged.get(plan.read_model.table)
        return plan.upsert(events) if staged is None else plan.insert(staged, events)

    async def fold(
        self,
        session: OwnedSession,
        projection: Projection,
        slices: SliceRange,
        until: datetime,
        *,
        from_first_kept: bool,
    ) -> int:
        """
        Fold all events of slices up to a time, in a transaction with one snapshot; returns how many there are.

        Args:
            session: In that transaction; nothing of these slices has been folded before.
            projection: Its read models need no older versions of events lifted (:func:`folds_as_a_whole`).
            slices: The part.
            until: The fence.
            from_first_kept: Whether first events of sources may be gone.

        Raises:
            journal.DatabaseError: The database refused, an event's data among the reasons.
        """
        of_part = (projection.entity_types.sql, *slices, until)
        for plan in await self.prepare(session, projection):
            types = [event_type_of(model).name for model in plan.read_model.models.values()]
            await session.execute(self.sql(plan, HISTORY), *of_part, types)
        await session.execute(_OFFSETS.format(schema=self._schema_sql), *of_part, from_first_kept)
        return int(await session.fetchval(_FOLDED.format(schema=self._schema_sql), *slices))


def folds_as_a_whole(projection: Projection) -> bool:
    """Whether its events can stay in the database: models read older versions, and what SQL may read otherwise."""
    if any(one.by_model for one in projection.read_models):
        return False
    models = [model for one in projection.read_models for model in one.models.values()]
    return bool(models) and all(event_type_of(model).version == 1 for model in models)


def marks(projection: Projection) -> list[str]:
    """SQL that notes which statements have filled the tables of read models, so that workers of others notice."""
    return [mark_table(one) for one in projection.read_models]
