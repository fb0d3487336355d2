"""Projections that go from inline to live and back under chaos, while those who append and who work are killed."""

from __future__ import annotations

import random
from typing import Any

import offsets
from projections import Inline
from projections.auditing import Audit
from projections.testing import run_until_caught_up
from tests.chaos.chaos import Chaos, audit
from tests.chaos.inline import TABLES, Effects, Totals, events_of
from tests.chaos.projecting import rows

_NAMES = ("totals", "effects")
_HANDLED = """
SELECT (SELECT count(*) FROM effects)::bigint - sum(r.handled)::bigint AS inline, sum(r.handled)::bigint AS live
FROM projections.projection_ranges AS r INNER JOIN projections.projections AS p USING (projection_id)
WHERE p.name = 'effects'
"""
_LEFT = """
SELECT (SELECT count(*) FROM projections.events) - least(
    (SELECT count(*) FROM effects), (SELECT coalesce(sum(n), 0) FROM totals)
) AS left_over
"""
_WRONG_TOTALS = """
SELECT kind, coalesce(t.n, 0) AS found, coalesce(e.n, 0) AS expected FROM totals AS t FULL JOIN (
    SELECT 'kind ' || ((payload ->> 'n')::int % 3) AS kind, count(*) AS n FROM projections.events GROUP BY 1
) AS e USING (kind) WHERE t.n IS DISTINCT FROM e.n
"""


class InlineChaos(Chaos):
    """Two projections, handled by who appends or by workers, as they are told while it goes on."""

    module = "tests.chaos.inline"
    kinds = (*Chaos.kinds, "fail-over", "restore")

    async def prepare(self) -> None:
        """The read models."""
        for table in TABLES:
            await rows(self._database, table)
        await run_until_caught_up(self._database, Totals, Effects, ranges=3)
        await self._switch(random.Random(self.seed))

    def _tasks(self) -> list[Any]:
        return [
            *(self._workers(self._choices(), what) for what in ("worker", "append") * 2),
            self._now_and_then(self._switch, 0.3, self._choices()),
        ]

    async def append_to(self, connection: Any, choices: random.Random, journal: int = 0) -> None:
        """Inline for both."""
        await Inline(Totals, Effects).append(connection, events_of(choices))

    async def _switch(self, choices: random.Random) -> str:
        async with self._database.session() as session:
            await offsets.set_mode(session, choices.choice(_NAMES), choices.choice(["inline", "live"]))
        return "switches"

    async def rescale(self, choices: random.Random) -> None:
        """Of either projection."""
        async with self._database.session() as session:
            await offsets.rescale(session, choices.choice(_NAMES), choices.choice([1, 2, 3, 8, 13]))

    def goes_on_alone(self, *options: str) -> bool:
        return options == ("worker",)

    async def _left_to_handle(self) -> int:
        (row,) = await rows(self._database, _LEFT)
        return int(row["left_over"])

    async def catch_up(self) -> None:
        """A worker that nothing happens to handles what is left."""
        (row,) = await rows(self._database, _HANDLED)
        self.counts.update(inline=row["inline"], live=row["live"])
        await super().catch_up()

    async def check(self) -> dict[str, Audit]:
        """Every event has its effect once, in order, and is in the totals once."""
        assert await rows(self._database, _WRONG_TOTALS) == []
        assert self.counts["inline"] > 0, "no event was handled inline"
        assert self.counts["live"] > 0, "no event was handled live"
        handled = "SELECT source_id, seq_nr, event_id::text FROM effects ORDER BY n"
        events = "SELECT source_id, seq_nr, event_id::text FROM projections.events"
        return await audit(self._database, events, self._database, handled)
