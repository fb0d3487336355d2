"""
Pages of read models in SQL that are handled inside the database: neither events nor their keys leave it.

One statement reads a page, writes the tables, and stores where its sources stand. It decides nothing: unless each event
is the next one of its source and fits its model, all is rolled back, and the page is read and judged as any other.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from journal import DatabaseError, OwnedSession, Position, SliceReader
from journal.database import Fault, fault_of
from offsets import OffsetOvertaken
from projections.errors import HandlerFailed
from projections.running.pipeline import Parts
from projections.running.read_model_writer import ReadModelWriter, WrittenPage


class WholePages:
    """
    Handles whole pages of a range while it catches up.

    Args:
        parts: What the events of the range are handled with.
        read_models: Has the statements; shared by all ranges of a process.
        reader: Says what the pages are of.
    """

    def __init__(self, parts: Parts, read_models: ReadModelWriter, reader: SliceReader) -> None:
        self._parts = parts
        self._read_models = read_models
        self._reader = reader
        self._catching_up = True

    def was_read(self, *, more: bool) -> None:
        """A page was read otherwise: whether more follows."""
        self._catching_up = more

    async def handle(
        self, session: OwnedSession, after: Position, until: datetime, old: datetime | None
    ) -> tuple[Position | None, bool] | None:
        """
        Handle the page after a position.

        Args:
            session: Outside a transaction.
            after: The position.
            until: Read no event after this time.
            old: A page that is older than this needs no offsets (``Acceptance.old``); None: each does.

        Returns:
            Its last place, or None where it is empty, and whether more may follow. None: nothing is stored, and it
            is to be handled otherwise.

        Raises:
            RangeLost, TransactionEnded, TableError, DatabaseError: Not an event's fault.
        """
        if not self._catching_up or any(one.by_model for one in self._parts.projection.read_models):
            return None
        begun = time.perf_counter()
        try:
            written = await self._write(session, after, until, old)
        except (HandlerFailed, OffsetOvertaken):
            return None
        except DatabaseError as error:
            if fault_of(error) is Fault.BATCH:
                return None  # less may pass where more took too long
            raise
        if written is None:
            self._catching_up = False
            return None, False
        if written.is_older:
            return None
        self._parts.retrying.handled_types(written.event_types)
        self._parts.reporting.handled_page(written.events, written.at, time.perf_counter() - begun)
        self._catching_up = written.events == self._reader.page_size
        return Position(*written[1:5]), self._catching_up

    async def _write(
        self, session: OwnedSession, after: Position, until: datetime, old: datetime | None
    ) -> WrittenPage | None:
        reader, parts = self._reader, self._parts
        page = (reader.entity_types.sql, *reader.slices, *after, until, reader.page_size)
        leaves_out = old, parts.transactions.retention
        written: WrittenPage | None = None

        async def store(fence: tuple[Any, ...]) -> bool | None:
            nonlocal written
            plans = await self._read_models.prepare(session, parts.projection)
            written = await parts.dispatcher.within_time(
                self._read_models.write_page(session, plans, page, (*fence, *leaves_out))
            )
            return None if written is None or written.is_older else bool(written.waited)

        await parts.transactions.commit_page(session, store)
        return written
