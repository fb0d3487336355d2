"""
What other packages register to be monitored: by an entry point of the group ``projections.monitoring``.

Each entry point names a :class:`Monitored`. Nothing here needs an extra: a snapshot is taken without any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import Field

from journal import NUMBER_OF_SLICES, Database, Session, SliceRange
from projections.monitoring.measures import Measure

Text: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Whatever PostgreSQL can hold."""
Ranges: TypeAlias = Annotated[int, Field(ge=1, le=NUMBER_OF_SLICES)]
"""Into how many ranges slices can be cut."""
Action: TypeAlias = Callable[..., Awaitable[str]]
"""What a button of the page does: takes the database, and what the page sends under the names and types of its other
parameters; returns what is said then."""


class Place(NamedTuple):
    """A range whose lag is checked."""

    kind: str
    """What has the range: a projection, or a group."""
    name: str
    """Its name."""
    slices: SliceRange


class Vacancy(NamedTuple):
    """A role that is needed and that nobody has."""

    role: str
    """One of few, such as ``delivery``."""
    text: str
    """What nobody does, and what waits for it."""
    start: str
    """What to start."""

    def __str__(self) -> str:
        return f"{self.text}; start {self.start}"


@dataclass(frozen=True, slots=True)
class Observed:
    """What a look at the database has seen of something that is monitored; override what there is to tell."""

    def metrics(self) -> Iterable[Measure]:
        """The measures for Prometheus."""
        return ()

    def lags(self) -> Mapping[Place, timedelta]:
        """The lag of each range that ``/lagz`` checks."""
        return {}

    def vacancies(self, idle: Sequence[str]) -> Iterable[Vacancy]:  # noqa: ARG002 - others ask for it
        """
        The roles of the package that are needed and have nobody.

        Args:
            idle: Of the projections that the package runs for itself, the names of those that no worker runs.
        """
        return ()

    async def page(self, database: Database) -> Mapping[str, Any]:  # noqa: ARG002 - others ask it for more
        """What the page is sent alongside the projections, by its names in JSON."""
        return {}


class Monitored(NamedTuple):
    """What a package registers to be monitored."""

    look: Callable[[Session], Awaitable[Observed]]
    actions: Mapping[str, Action] = {}
    """By the names that the page calls them by."""
    internal: Sequence[str] = ()
    """How the names of the projections begin that the package runs for itself: a monitor shows them apart."""
    roles: Sequence[str] = ()
    """The roles that :meth:`Observed.vacancies` may tell of."""


GROUP = "projections.monitoring"
"""The group of entry points that name what is monitored."""
