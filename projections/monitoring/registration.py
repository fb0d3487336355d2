"""
What other packages register to be monitored: by an entry point of the group ``projections.monitoring``.

Each entry point names a :class:`Monitored`. Nothing here needs an extra: a snapshot is taken without any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from journal import NUMBER_OF_SLICES, Database, ProjectionsError, Session, SliceRange

T = TypeVar("T")

Text: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Whatever PostgreSQL can hold."""
Ranges: TypeAlias = Annotated[int, Field(ge=1, le=NUMBER_OF_SLICES)]
"""Into how many ranges slices can be cut."""
Gauges: TypeAlias = Mapping[str, tuple[str, Callable[[T], float]]]
"""By the end of its name, what a gauge says, and its value."""


class Place(NamedTuple):
    """A range whose lag is checked."""

    kind: str
    """What has the range: a projection, or a group."""
    name: str
    """Its name."""
    slices: SliceRange


class Measure(NamedTuple):
    """A metric of what was seen. Labels are names and states, never sources, subscriptions, endpoints or texts."""

    name: str
    """Without the ``projections_`` that all begin with."""
    documentation: str
    samples: Sequence[tuple[Sequence[str], float]]
    """Each with the values of its labels."""
    labels: Sequence[str] = ()
    counts: bool = False
    """Whether it is a counter; else it is a gauge."""


class Observed(Protocol):
    """What a look at the database has seen of something that is monitored."""

    def metrics(self) -> Iterable[Measure]:
        """What Prometheus is told."""

    def lags(self) -> Mapping[Place, timedelta]:
        """The lag of each range that ``/lagz`` checks."""

    async def page(self, database: Database) -> Mapping[str, Any]:
        """What the monitor's page is sent beside the projections, by its names in JSON; more may be asked for it."""


class Form(BaseModel):
    """What a button of the page sends."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PageAction(NamedTuple):
    """What a button of the page does."""

    form: type[Form]
    follow: Callable[[Database, Any], Awaitable[str]]
    """Does it; returns what is said then. Raises a ProjectionsError."""


class ActionRefused(ProjectionsError):
    """An action came too late: what the page has shown is so no longer."""


class Monitored(NamedTuple):
    """What is monitored."""

    look: Callable[[Session], Awaitable[Observed]]
    actions: Mapping[str, PageAction] = {}
    """By the names that the page calls them by."""
    statuses: Mapping[type[ProjectionsError], int] = {}
    """What HTTP calls the errors of the actions; 503 where it is not said."""


@cache
def registered() -> Sequence[Monitored]:
    """All that is registered, in the order of the names of the entry points."""
    return [point.load() for point in sorted(entry_points(group="projections.monitoring"))]


def gauges(
    prefix: str, which: Gauges[T], things: Sequence[tuple[Sequence[str], T]], labels: Sequence[str] = ()
) -> Iterator[Measure]:
    """A measure for each gauge, with a sample for each thing, which comes with the values of its labels."""
    for name, (documentation, value) in which.items():
        samples = [(values, value(thing)) for values, thing in things]
        yield Measure(f"{prefix}_{name}", documentation, samples, labels)
