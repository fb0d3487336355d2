"""
What other packages register to be monitored: by an entry point of the group ``projections.monitoring``.

Each entry point names a :class:`Monitored`. Nothing here needs an extra: a snapshot is taken without any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import Field

from journal import NUMBER_OF_SLICES, Database, ProjectionsError, Session, SliceRange

Text: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Whatever PostgreSQL can hold."""
Ranges: TypeAlias = Annotated[int, Field(ge=1, le=NUMBER_OF_SLICES)]
"""Into how many ranges slices can be cut."""
Action: TypeAlias = Callable[..., Awaitable[str]]
"""What a button of the page does: takes the database, and what the page sends under the names and types of its other
parameters; returns what is said then."""
Gauges: TypeAlias = Mapping[str, tuple[str, str | Callable[[Any], float]]]
"""By the ends of the names of gauges, what they say, and the attribute that has the value, or what computes it."""


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


@dataclass(frozen=True, slots=True)
class Observed:
    """What a look at the database has seen of something that is monitored; override what there is to tell."""

    def metrics(self) -> Iterable[Measure]:
        """What Prometheus is told."""
        return ()

    def lags(self) -> Mapping[Place, timedelta]:
        """The lag of each range that ``/lagz`` checks."""
        return {}

    async def page(self, database: Database) -> Mapping[str, Any]:  # noqa: ARG002 - others ask it for more
        """What the page is sent beside the projections, by its names in JSON."""
        return {}


class ActionRefused(ProjectionsError):
    """An action came too late: what the page has shown is so no longer."""


class Monitored(NamedTuple):
    """What a package registers to be monitored."""

    look: Callable[[Session], Awaitable[Observed]]
    actions: Mapping[str, Action] = {}
    """By the names that the page calls them by."""
    statuses: Mapping[type[ProjectionsError], int] = {}
    """What HTTP calls the errors of the actions; 503 where it is not said."""


@cache
def registered() -> Sequence[Monitored]:
    """All that is registered, in the order of the names of the entry points."""
    return [point.load() for point in sorted(entry_points(group="projections.monitoring"))]


def gauges(
    prefix: str, which: Gauges, things: Sequence[tuple[Sequence[str], object]], labels: Sequence[str] = ()
) -> Iterator[Measure]:
    """A measure for each gauge, with a sample for each thing, which comes with the values of its labels."""
    for name, (documentation, value) in which.items():
        get = attrgetter(value) if isinstance(value, str) else value
        samples = [(values, get(thing)) for values, thing in things]
        yield Measure(f"{prefix}_{name}", documentation, samples, labels)
