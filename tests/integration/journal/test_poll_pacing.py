"""What counts as news for how soon the next poll follows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from journal import BEGINNING, Database, EntityTypes, PollPacing, WritersPoller
from journal.service import Pace
from tests.fixtures.projections import happen

PLANES = EntityTypes(("plane",))


class Recorded(Pace):
    """Takes next to no time, and tells its steps: 0 after news."""

    steps = 0

    def quicken(self) -> None:
        super().quicken()
        self.steps = 0

    def slow_down(self) -> float:
        self.steps += 1
        return super().slow_down()


class Pacing(PollPacing):
    def pace(self) -> Pace:
        return Recorded(timedelta(microseconds=1), timedelta(microseconds=1))


class Poller(WritersPoller):
    """Is asked by ranges that have read nothing yet."""

    async def steps_after(self, who: str) -> int:
        """Polls since the last news, after a poll for a range."""
        await self.look(who, PLANES, BEGINNING, self.number, 0)
        assert isinstance(self._pace, Recorded)
        return self._pace.steps


@pytest.fixture
async def poller(database: Database) -> AsyncIterator[Poller]:
    poller = Poller(database, Pacing())
    yield poller
    await poller.close()


async def test_an_event_is_news_once_also_where_nobody_reads_it(database: Database, poller: Poller) -> None:
    """A paused range stays where it is; polls for others must not stay quick for it."""
    for _ in range(2):
        await poller.steps_after("paused")
    await happen(database, "s1")

    assert [await poller.steps_after("other") for _ in range(3)] == [0, 1, 2]


async def test_each_event_is_news(database: Database, poller: Poller) -> None:
    for _ in range(2):
        await poller.steps_after("reading")
    for number in range(1, 4):
        await happen(database, f"s{number}")
        assert [await poller.steps_after("reading") for _ in range(2)] == [0, 1]
