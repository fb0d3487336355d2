"""Noticing that sources fail alike, one after the other: then the handler is at fault, and not their events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ALIKE: Final = 10
"""How many sources may fail alike, by default."""


class Streak:
    """
    Counts sources that were given up, by what they failed with; up to ``limit`` may fail alike.

    One that is handled ends the count of its event type. It outlives restarts of its range. ``wider`` counts those of
    all ranges of the projection in this process, too.
    """

    def __init__(self, limit: int, wider: Streak | None = None) -> None:
        self.limit = limit
        self._wider = wider
        self._failed: dict[tuple[str, str], set[str]] = {}

    def handled(self, event_types: Iterable[str]) -> None:
        """Events of these types were handled."""
        if self._wider is not None:
            self._wider.handled(event_types := list(event_types))
        if self._failed:
            ended = set(event_types)
            self._failed = {key: sources for key, sources in self._failed.items() if key[0] not in ended}

    def failed(self, event_type: str, kind: str, source_id: str) -> bool:
        """Note that a source is to be given up; whether too many have failed alike."""
        wide = self._wider is not None and self._wider.failed(event_type, kind, source_id)
        sources = self._failed.setdefault((event_type, kind), set())
        if len(sources) <= self.limit:
            sources.add(source_id)
        return wide or len(sources) > self.limit
