"""The ranges of a group that a consumer holds: started, lost, dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from journal import SliceRange
from projections.subscriptions.groups import GroupRange
from projections.subscriptions.range_reader import RangeReader
from projections.subscriptions.registration import HandlerSubscription
from projections.subscriptions.settings import ConsumerSettings

log = logging.getLogger("projections")


class HeldRanges:
    """
    A reader for each range that is held.

    Going through it goes through those that were there at its beginning.

    Args:
        group: The group.
        settings: How they read.
        changed: Called when there is something to do.
    """

    def __init__(self, group: str, settings: ConsumerSettings, changed: Callable[[], None]) -> None:
        self._group = group
        self._settings = settings
        self._changed = changed
        self._readers: dict[tuple[SliceRange, int | None], RangeReader] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[RangeReader]:
        """Each reader."""
        return iter(list(self._readers.values()))

    def __len__(self) -> int:
        """How many ranges are held."""
        return len(self._readers)

    def get(self, key: tuple[SliceRange, int | None]) -> RangeReader | None:
        """Who reads a range, by :attr:`GroupRange.key`; None where it is not held."""
        return self._readers.get(key)

    def look_again(self) -> None:
        """Read all of them again, which says whether what they have read is still there."""
        for reader in self:
            reader.looked_until = -1

    def start(self, held: GroupRange, handlers: Mapping[str, HandlerSubscription]) -> None:
        """Read a range from its stored cursor on."""
        reader = RangeReader(
            self._group, held, handlers, read_ahead=self._settings.read_ahead,
            restart=self._settings.restart, changed=self._changed,
        )  # fmt: skip
        self._readers[held.key] = reader
        log.info(
            "group %s: slices %s started after match %d", self._group, held.slices, held.cursor,
            extra=reader.labels("started"),
        )  # fmt: skip

    def lose(self, reader: RangeReader, why: str) -> None:
        """Drop a range that is another's, or not as it is remembered, and say why."""
        log.warning(
            "group %s: slices %s are lost: %s", self._group, reader.held.slices, why,
            extra=reader.labels("range_lost"),
        )  # fmt: skip
        self.drop(reader)

    def drop(self, reader: RangeReader) -> None:
        """Cancel all that is in hand of a range."""
        self._readers.pop(reader.held.key, None)
        if (ending := reader.drop()) is not None:
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def leave(self, others: Iterable[asyncio.Task[None]], limit: float) -> None:
        """Drop all; waits so many seconds for what was cancelled, and for others that end."""
        for reader in self:
            self.drop(reader)
        if ending := {*self._ending, *others}:
            await asyncio.wait(ending, timeout=limit)
