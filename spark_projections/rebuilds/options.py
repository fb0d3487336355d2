"""What is asked of a rebuild, what it reports while it runs, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from journal import ALL_SLICES, SliceRange
from spark_projections.rebuilds.bookkeeping import FoldedParts, Rebuild


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """
    What to rebuild, and how.

    Args:
        slices: Only these; needs tables whose rows tell their source (``Table(source=...)``).
        splits: Into how many tasks the work is cut; by default four for each core.
        until: Build the read model as of this time; live workers handle what is later.
        in_place: Replace rows instead of tables, which keeps what hangs on the tables (views, foreign keys, triggers)
            and takes as long as the rows need. A range of slices is always replaced in place.
        skip: Go on after events that the handlers cannot handle.
        from_first_kept: Build from the events that are left where the first ones of a source have been deleted.
        restart: Begin again, whatever an interrupted rebuild has left.
        swap_within: Give up when the tables have been in use for this time; run it again to go on from there.
        swap_timeout: How long the one transaction that swaps may take, for which readers and workers wait. One that
            takes longer is undone; run it again with more to go on from there.

    Raises:
        ValueError: A range of slices that there is not, fewer than one split, a time without its zone, or a
            swap_timeout below a millisecond.
    """

    slices: SliceRange = ALL_SLICES
    splits: int | None = None
    until: datetime | None = None
    in_place: bool = False
    skip: bool = False
    from_first_kept: bool = False
    restart: bool = False
    swap_within: timedelta = timedelta(minutes=5)
    swap_timeout: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        SliceRange.of(*self.slices)
        if self.splits is not None and self.splits < 1:
            raise ValueError(f"splits must be 1 or more, not {self.splits}")
        if self.until is not None and self.until.utcoffset() is None:
            raise ValueError(f"the time {self.until} is naive: give it a time zone, such as datetime.UTC")
        if self.swap_timeout < timedelta(milliseconds=1):
            raise ValueError(f"swap_timeout must be a millisecond or more, not {self.swap_timeout}")

    @property
    def method(self) -> Literal["rename", "replace"]:
        """How the new takes the place of the old."""
        return "replace" if self.in_place or self.slices != ALL_SLICES else "rename"


class RebuildProgress:
    """Gets the progress of a rebuild; does nothing. Methods are called on the event loop and must not block."""

    def stage(self, name: str) -> None:
        """A stage begins: ``fence``, ``fold``, ``combine``, ``verify``, ``swap``."""

    def resumed(self, rebuild: Rebuild) -> None:
        """It goes on from what an interrupted one has left."""

    def waiting(self, reason: str) -> None:
        """Somebody else is in the way."""

    def folded(self, now: FoldedParts, total: int) -> None:
        """The number of events that are folded, of about how many."""


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """The outcome."""

    projection: str
    rebuild_id: int
    slices: SliceRange
    fence: datetime
    events: int
    """Events that were read; by all runs, where it was resumed."""
    skipped: int
    sources: int
    rows: dict[str, int]
    """Rows of each new table."""
    rows_before: dict[str, int]
    """Rows of what it replaced: what live workers had made of the same slices by then."""
    sampled: int
    """Sources that were folded again and compared."""
    seconds: dict[str, float]
    """By stage."""
    swap_seconds: float
    """How long the transaction took in which live workers and readers had to wait."""
    resumed: bool
    old_schema: str
    """Where the tables are that served until now."""
