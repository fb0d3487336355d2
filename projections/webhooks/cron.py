"""
Lines of cron: when a schedule sends, over changes of the clocks and over times when nobody was there to send.

Five fields as in Debian's cron (by https://github.com/cuu508/cronsim), or six with the seconds first, or an alias.
When the clocks change, lines that name an hour and a minute keep to once a day, as Debian's cron(8) does
(https://manpages.debian.org/stable/cron/cron.8.en.html):

| line | clocks go forward over it | clocks go back over it |
| --- | --- | --- |
| `30 2 * * *` | once, right after the gap (03:00) | once, the first time it is 02:30 |
| `*/30 * * * *`, `0 * * * *`: the hour or the minute is a star | goes on in real time | goes on in real time |
| six fields | not that day | twice |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from projections.extras import from_extra
from projections.webhooks.errors import InvalidSchedule

MissedTicks = Literal["skip", "one", "all"]

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_LINE = 256
_SECOND = timedelta(seconds=1)
_LATE = timedelta(minutes=1)
"""A tick that is so late at most is sent in any case."""
_MOST_COUNTED = 100
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)


class Standstill(NamedTuple):
    """A time in which nobody could send."""

    began_at: datetime
    ended_at: datetime


class DueTicks(NamedTuple):
    """What a schedule sends now, and when to look again."""

    ticks: tuple[datetime, ...]
    """Ticks to send for, the oldest first, in UTC."""
    next_at: datetime | None
    """The first tick that was neither sent nor skipped: in the past where there are more. None: no more come."""
    skipped: int = 0
    """Ticks that were missed and are not sent, counted up to 100 of each standstill."""


@dataclass(frozen=True)
class CronLine:
    """
    When a schedule sends.

    Args:
        text: Five fields, six with the seconds first, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
        timezone: Name in the IANA database, in which the line is read: `Europe/Paris`.

    Raises:
        InvalidValue: The line or the zone cannot be, or the line has no tick, such as 30 February.
        MissingExtra: The package cronsim is not installed.
    """

    text: str
    timezone: str = "UTC"
    _fields: str = field(init=False, repr=False, compare=False)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fields", _ALIASES.get(self.text.strip().lower(), self.text))
        object.__setattr__(self, "_zone", _zone(self.timezone))
        self._check()

    def next_tick(self, after: datetime) -> datetime | None:
        """Find the first tick later than a time, which has a time zone; in UTC, None if there is none in 50 years."""
        back = None if self._once_a_day else _goes_back(self._zone, after)
        for wall in self._walls_from(_wall(self._zone, after)):
            at = self._at(wall, after)
            if back is not None and (at is None or at >= back):
                break
            if at is not None:
                return at
        if back is None:
            return None
        # From there on the clocks say again what they have said before.
        before = back - _SECOND
        walls = self._walls_from(_wall(self._zone, back) - _SECOND)
        return next((at for wall in walls if (at := self._at(wall, before)) is not None), None)

    def _walls_from(self, wall: datetime) -> Iterator[datetime]:
        """What the clocks say at its ticks, from what they say at a time on, if nobody changes them."""
        from cronsim import CronSim  # noqa: PLC0415 - the check has said so where it is missing

        return CronSim(self._fields, wall)

    @property
    def _once_a_day(self) -> bool:
        """Whether it names hour and minute, and so keeps to its number of ticks in a day when the clocks change."""
        fields = self._fields.split()
        return len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")  # noqa: PLR2004

    def _at(self, wall: datetime, after: datetime) -> datetime | None:
        """When the clocks say this, in UTC, first after a time; None where they do not."""
        times = _times(self._zone, wall)
        if self._once_a_day:
            while not times:  # skipped: right after the gap
                wall += timedelta(minutes=1)
                times = _times(self._zone, wall)
            times = times[:1]
        return next((at for at in times if at > after), None)

    def due_ticks(
        self,
        first_due: datetime,
        now: datetime,
        missed: MissedTicks,
        standstills: Sequence[Standstill] = (),
        limit: int = 1000,
    ) -> DueTicks:
        """
        Decide which ticks to send for now, from ``first_due`` on, the first not looked at; up to a number at a time.

        A tick is missed if it was due in a standstill, a span in which no process could send, and then the schedule
        decides: `skip` sends none of a standstill, but one that is a minute late at most, `one` the last, `all` each.
        Any other is late at most, and is sent. ``now`` is the database's time.
        """
        ticks: list[datetime] = []
        tick: datetime | None = first_due.astimezone(UTC)
        skipped = 0
        while tick is not None and tick <= now and len(ticks) < limit:
            standstill = None if missed == "all" else _around(tick, standstills)
            if standstill is None:
                ticks.append(tick)
            else:
                end = min(standstill.ended_at, now)
                latest = self._latest(tick, end)
                sent = missed == "one" or end - latest <= _LATE
                skipped += self._count(tick, latest) + (not sent)
                if sent:
                    ticks.append(latest)
                tick = latest
            tick = self.next_tick(tick)
        return DueTicks(tuple(ticks), tick, skipped)

    def _count(self, first: datetime, last: datetime) -> int:
        """How many ticks there are from the first to before the last; more are not counted than are worth the time."""
        number, tick = 0, first
        while tick < last and number < _MOST_COUNTED:
            number += 1
            following = self.next_tick(tick)
            if following is None:
                break
            tick = following
        return number

    def _latest(self, first_due: datetime, now: datetime) -> datetime:
        """Find the latest tick until now: looks back twice as far until it finds one, then walks on from there."""
        back = timedelta(minutes=1)
        tick: datetime | None = first_due
        while now - back > first_due:
            tick = self.next_tick(now - back)
            if tick is not None and tick <= now:
                break
            tick, back = first_due, back * 2
        latest = first_due
        while tick is not None and tick <= now:
            latest, tick = tick, self.next_tick(tick)
        return latest.astimezone(UTC)

    def _check(self) -> None:
        with from_extra("webhooks"):
            from cronsim import CronSimError  # noqa: PLC0415

        if len(self.text) > _LONGEST_LINE:
            raise InvalidSchedule(f"a cron line is up to {_LONGEST_LINE} characters, not {len(self.text)}")
        try:
            tick = self.next_tick(_ANY_DAY)
        except CronSimError as error:
            raise InvalidSchedule(
                f"the cron line {self.text!r} cannot be: {error}; it has 5 fields, 6 with the seconds first, "
                f"or is one of {', '.join(_ALIASES)}"
            ) from None
        if tick is None:
            raise InvalidSchedule(f"the cron line {self.text!r} has no tick in 50 years")


def _wall(zone: ZoneInfo, at: datetime) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def _times(zone: ZoneInfo, wall: datetime) -> list[datetime]:
    """When clocks say this: once, twice where they go back, and never where they go forward over it."""
    times = sorted({wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)})
    return [at for at in times if _wall(zone, at) == wall]


def _goes_back(zone: ZoneInfo, after: datetime) -> datetime | None:
    """When the clocks go back within a day, by however much: until then, that is soon."""
    first, last = after.astimezone(UTC), after.astimezone(UTC) + timedelta(days=1)
    offset = first.astimezone(zone).utcoffset()
    later = last.astimezone(zone).utcoffset()
    assert offset is not None and later is not None  # noqa: S101, PT018 - a zone has one at any time
    if later >= offset:
        return None
    first = first.replace(microsecond=0)
    while last - first > _SECOND:
        middle = first + (last - first) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            first = middle
        else:
            last = middle
    return last.replace(microsecond=0)


def _around(tick: datetime, standstills: Sequence[Standstill]) -> Standstill | None:
    return next((one for one in standstills if one.began_at < tick <= one.ended_at), None)


def _zone(name: str) -> ZoneInfo:
    # Each machine has a localtime of its own, and some have zones with leap seconds.
    known = name != "localtime" and not name.startswith(("right/", "posix/"))
    try:
        return ZoneInfo(name if known else "")
    except (LookupError, ValueError, OSError):  # unknown, a path, or a directory of the database
        raise InvalidSchedule(
            f"there is no time zone {name!r}; names are those of the IANA database, such as Europe/Paris"
        ) from None
