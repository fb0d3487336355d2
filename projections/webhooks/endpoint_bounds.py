"""What endpoints may ask for: bounds in the database that administrators set, for all tenants and processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from journal import Session
from projections.webhooks.errors import InvalidEndpoint
from projections.webhooks.retry_policy import RetryPolicy

BoundName = Literal["max_in_flight", "timeout", "pause", "attempts", "breaker_failures", "breaker_pause"]
NAMES: tuple[BoundName, ...] = get_args(BoundName)

_COLUMNS = "l.name, l.least::double precision AS least, l.most::double precision AS most"
_READ = f"SELECT {_COLUMNS} FROM projections.webhook_limits AS l ORDER BY l.name"
_CHANGE = f"""
UPDATE projections.webhook_limits AS l SET
    least = CASE WHEN $2::boolean THEN $3::double precision ELSE l.least END,
    most = CASE WHEN $4::boolean THEN $5::double precision ELSE l.most END
WHERE l.name = $1 RETURNING {_COLUMNS}
"""


_REACH: dict[str, tuple[float, float]] = {
    "max_in_flight": (1, 1000),
    "timeout": (1, 60),
    "pause": (0, 30 * 86_400),
    "attempts": (1, 101),
    "breaker_failures": (1, 1_000_000_000),
    "breaker_pause": (1, 86_400),
}
"""What the library allows; a bound beyond it would let nobody send, or hold a place for years."""
_COUNTS = frozenset({"max_in_flight", "attempts", "breaker_failures"})


class Bound(NamedTuple):
    """
    What endpoints may ask for of one thing, at least and at most, in seconds; None: what the library allows.

    ``pause`` is each of a retry schedule, ``attempts`` of a delivery.
    """

    name: str
    least: float | None
    most: float | None

    def allows(self, value: float) -> bool:
        """Whether an endpoint may ask for it."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        least, most = (f"{bound:g}" if bound is not None else None for bound in (self.least, self.most))
        if least and most:
            return f"{least} to {most}"
        return f"at least {least}" if least else f"at most {most}"


class _Bounded(Protocol):
    """What an endpoint asks for."""

    @property
    def max_in_flight(self) -> int: ...
    @property
    def policy(self) -> RetryPolicy: ...


async def bounds(session: Session) -> list[Bound]:
    """Read what endpoints may ask for; the role needs projections_reader or projections_worker."""
    return [Bound(*row.values()) for row in await session.fetch(_READ)]


async def change_bound(
    session: Session,
    name: BoundName,
    *,
    least: float | Literal["none"] | None = None,
    most: float | Literal["none"] | None = None,
) -> Bound:
    """
    Change what endpoints may ask for. Those that ask for what it leaves out are held to it when they are next sent to.

    Times are in seconds; ``"none"`` is what the library allows, None leaves it as it is. The role must own the schema.

    Raises:
        InvalidValue: There is no such bound, or it is invalid.
    """
    old = {one.name: one for one in await bounds(session)}.get(name)
    if old is None:
        raise InvalidEndpoint(f"there is no bound {name!r:.80}; there are {', '.join(NAMES)}")
    new = Bound(name, _chosen(least, old.least), _chosen(most, old.most))
    for value in (new.least, new.most):
        _check_reach(name, value)
    if new.least is not None and new.most is not None and new.least > new.most:
        raise InvalidEndpoint(f"the least {name} would be {new.least:g}, more than the most, {new.most:g}")
    row = await session.fetchrow(_CHANGE, name, least is not None, new.least, most is not None, new.most)
    assert row is not None  # noqa: S101 - it was just read
    return Bound(*row.values())


def check_bounds(wanted: _Bounded, before: _Bounded, allowed: Sequence[Bound]) -> None:
    """
    Check that an endpoint asks for no more, and no less, than it may; else InvalidValue says of what.

    What is as it was before is not asked for: it is held to the bounds when it is used.
    """
    known = set(_asked(before))
    by_name = {one.name: one for one in allowed}
    for what, name, value in _asked(wanted):
        bound = by_name.get(name)
        if bound is not None and (what, name, value) not in known and not bound.allows(value):
            raise InvalidEndpoint(f"{what} can be {bound} here, not {value:g}")


def _asked(settings: _Bounded) -> Iterator[tuple[str, BoundName, float]]:
    policy = settings.policy
    yield "max_in_flight", "max_in_flight", settings.max_in_flight
    yield "policy.timeout (s)", "timeout", policy.timeout.total_seconds()
    for pause in policy.schedule:
        yield "a pause of policy.schedule (s)", "pause", pause.total_seconds()
    yield "the attempts that policy.schedule makes", "attempts", policy.retries.attempts
    yield "policy.breaker_failures", "breaker_failures", policy.breaker_failures
    yield "policy.breaker_pause.first (s)", "breaker_pause", policy.breaker_pause.first.total_seconds()
    yield "policy.breaker_pause.longest (s)", "breaker_pause", policy.breaker_pause.longest.total_seconds()


def _check_reach(name: BoundName, value: float | None) -> None:
    first, last = _REACH[name]
    if value is not None and not first <= value <= last:
        raise InvalidEndpoint(f"a bound of {name} is {first:g} to {last:g}, not {value:g}")
    if value is not None and name in _COUNTS and value % 1:
        raise InvalidEndpoint(f"a bound of {name} is a whole number, not {value:g}")


def _chosen(given: float | Literal["none"] | None, old: float | None) -> float | None:
    if given is None:
        return old
    return None if given == "none" else given
