"""How large pages of events may be in a process, and smaller ones where its memory was too small for them."""

from __future__ import annotations

import logging

from journal import NoAnswer, OutOfMemory
from projections.errors import said

log = logging.getLogger("projections")

_SMALLEST = 64 * 1024
"""Bytes: below it, what a process lacks is not memory for pages. One event is always read."""


class PageLimit:
    """The bytes of a page, shared by all ranges of a process as its memory is."""

    def __init__(self, limit: int) -> None:
        self.bytes = limit

    @property
    def smallest(self) -> bool:
        """Whether it cannot be halved any more."""
        return self.bytes <= _SMALLEST

    def reads_little(self, events: int) -> bool:
        """Whether it is not what was read with an event that takes the memory which it lacks."""
        return events == 1 or self.smallest

    def failed(self, error: Exception) -> None:
        """Halve it until the process ends: a range lacked memory, or waited for a page without success."""
        if not isinstance(error, MemoryError | OutOfMemory | NoAnswer) or self.smallest:
            return
        self.bytes = max(self.bytes // 2, _SMALLEST)
        log.warning(
            "from now on this process reads pages of at most %d KiB: %s. Give it more memory, fewer ranges, or smaller "
            "page_bytes", self.bytes // 1024, said(error),
            extra={"action": "pages_halved", "page_bytes": self.bytes},
        )  # fmt: skip
