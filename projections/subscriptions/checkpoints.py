"""How far a range is: pages that were read, in their order, and which of them are done. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from projections.subscriptions.reading import MatchPlace


@dataclass(slots=True, eq=False)
class Checkpoint:
    """
    A page that was read: done when all that it was handed to have done their part.

    Args:
        cursor: The place after its last match.
        open: How many handlers have not done their part.
    """

    cursor: MatchPlace
    open: int


class Checkpoints:
    """
    The pages of a range that are not behind its cursor yet.

    The cursor is the end of the last page before which everything is done: one that is done waits for those before it.

    Args:
        cursor: Where the range stands.
    """

    def __init__(self, cursor: MatchPlace) -> None:
        self.cursor = cursor
        self.begun_until = cursor
        """The end of the last page that anybody has begun with."""
        self._active: deque[Checkpoint] = deque()

    def __len__(self) -> int:
        return len(self._active)

    def add(self, cursor: MatchPlace, parts: int) -> Checkpoint:
        """
        Take in the next page.

        Args:
            cursor: The place after its last match, which comes after that of the page before.
            parts: How many handlers have something to do for it; with none it is done.

        Raises:
            ValueError: It does not come after the page before.
        """
        last = self._active[-1].cursor if self._active else self.cursor
        if cursor <= last:
            raise ValueError(f"a page that ends at {cursor.match_id} does not come after {last.match_id}")
        checkpoint = Checkpoint(cursor, parts)
        self._active.append(checkpoint)
        self._advance()
        return checkpoint

    def begin(self, checkpoint: Checkpoint) -> None:
        """A handler begins with its part of a page."""
        self.begun_until = max(self.begun_until, checkpoint.cursor)

    def done(self, checkpoint: Checkpoint) -> None:
        """A handler has done its part of a page."""
        checkpoint.open -= 1
        self._advance()

    def pass_over(self, cursor: MatchPlace) -> None:
        """Nothing up to here is for this range; does nothing while a page is not done."""
        if not self._active:
            self.cursor = max(self.cursor, cursor)

    @property
    def all_begun_are_done(self) -> bool:
        """Whether the cursor is past every page that anybody has begun with: stopping here repeats nothing."""
        return self.cursor >= self.begun_until

    def _advance(self) -> None:
        while self._active and self._active[0].open == 0:
            self.cursor = self._active.popleft().cursor
