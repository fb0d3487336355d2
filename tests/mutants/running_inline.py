"""Bugs of handling events in the transaction that appends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from offsets import management
from projections.running.read_model_writer import ReadModelWriter
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method
from tests.simulation.postgres import inline
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.storage import Row, Snapshot

INLINE = Simulation(100, arrangement="inline")


def _ready(wrong: Callable[[Row | None, int], bool | None]) -> AbstractContextManager[Any]:
    """Have an append decide otherwise, by the offset of the source and the number of its first event."""
    right = inline.is_ready

    def is_ready(  # noqa: PLR0917 - as it is called
        db: Backend, snapshot: Snapshot, projection: Row, source_id: str, first: int, first_at: datetime
    ) -> bool:
        offset = db.table("source_offsets").get(snapshot, projection["projection_id"], source_id)
        decided = wrong(offset, first)
        return right(db, snapshot, projection, source_id, first, first_at) if decided is None else decided

    return method(inline, "is_ready", is_ready)


@mutant(
    "inline-passes-over-what-is-not-handled",
    "an append handles events whatever of their source was handled before",
    "sql/functions/offsets/_begin_inline_v1.sql",
    INLINE,
)
def _whatever_was_handled() -> AbstractContextManager[Any]:
    return _ready(lambda offset, _first: True if offset is not None else None)


@mutant(
    "inline-takes-any-new-source",
    "an append handles a source without an offset, whatever was appended to it before",
    "sql/functions/offsets/_begin_inline_v1.sql",
    INLINE,
)
def _any_new_source() -> AbstractContextManager[Any]:
    return _ready(lambda offset, _first: True if offset is None else None)


@mutant(
    "inline-handles-again",
    "an append handles what was handled, as far as its own numbers tell",
    "sql/functions/offsets/_begin_inline_v1.sql",
    INLINE,
)
def _handles_again() -> AbstractContextManager[Any]:
    return _ready(lambda offset, first: offset["seq_nr"] >= first - 2 if offset is not None else None)


_TABLES = "tests/integration/running/test_inline_read_models.py::"


@mutant(
    "inline-without-its-tables",
    "a read model in SQL is made inline before its tables are there, and no append succeeds",
    "projections/running/read_model_writer.py: ReadModelWriter.begin",
    Pytest(f"{_TABLES}test_it_is_made_inline_before_its_first_event"),
)
def _without_tables() -> AbstractContextManager[Any]:
    async def begin(self: ReadModelWriter, session: Any, projection: Any) -> None:
        pass

    return method(ReadModelWriter, "begin", begin)


@mutant(
    "inline-mode-is-not-checked",
    "a projection is made inline whatever its tables are",
    "offsets/management.py: set_mode",
    Pytest(f"{_TABLES}test_it_is_not_made_inline_where_each_append_would_fail"),
)
def _unchecked_mode() -> AbstractContextManager[Any]:
    return method(management, "_MISSING_TABLES", "SELECT 1 FROM unnest($1::integer[]) WHERE FALSE")
