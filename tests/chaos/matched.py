"""What must be true of subscriptions when all is caught up: who matched what, and which handler has seen it."""

from __future__ import annotations

from functools import partial

from journal import Database
from projections.auditing import Audit, History
from tests.chaos.chaos import audit, tell
from tests.chaos.projecting import rows
from tests.chaos.subscriber import POISON

_MATCHED = "SELECT source_id, seq_nr FROM match_log WHERE subscription_id = {number}"
_EXPECTED = """
SELECT source_id, seq_nr FROM event_log
WHERE CASE WHEN payload ->> 'to' IS NULL THEN {predicate} ELSE (payload ->> 'to')::bigint = {number} END
"""
# Publishers have events that are for later.
_IN_ORDER = "NOT starts_with(source_id, 'publisher/')"
_SEEN = "SELECT source_id, seq_nr FROM seen WHERE handler = '{handler}' AND {which} ORDER BY n"
_UNSEEN = """
SELECT m.source_id, m.seq_nr FROM match_log AS m WHERE m.subscription_id = {number} AND NOT EXISTS (
    SELECT FROM seen AS s WHERE s.handler = '{handler}' AND s.source_id = m.source_id AND s.seq_nr = m.seq_nr
)
"""
_DEAD = """
SELECT j.match ->> 'source_id' AS source_id, (j.match ->> 'seq_nr')::bigint AS seq_nr
FROM projections.group_retries AS r CROSS JOIN LATERAL json_array_elements(r.matches) AS j (match)
WHERE r.due_at IS NULL
"""
_POISON = f"""
SELECT m.source_id, m.seq_nr FROM match_log AS m INNER JOIN event_log AS e USING (source_id, seq_nr)
WHERE m.subscription_id = {{number}}
AND CASE jsonb_typeof(e.payload -> 'n') WHEN 'number' THEN (e.payload ->> 'n')::integer % {POISON} = 0 END
"""


async def keys(database: Database, sql: str) -> set[tuple[str, int]]:
    return {(row["source_id"], row["seq_nr"]) for row in await rows(database, sql)}


async def matched(database: Database) -> Audit:
    """Each event was matched once, with the subscriptions that it is for."""
    with History() as history:
        history.expect("matches")
        for number, predicate in [(*row.values(),) for row in await rows(database, "SELECT * FROM asked")]:
            # A match of several subscriptions is one of each; which was matched first does not matter.
            expected = _EXPECTED.format(predicate=predicate, number=number)
            await tell(database, _named(number, expected), history.committed)
            found = _named(number, _MATCHED.format(number=number)) + " ORDER BY source_id, seq_nr"
            await tell(database, found, partial(history.handled, projection="matches"))
        return history.audit()["matches"]


def _named(number: int, query: str) -> str:
    """The sources of a subscription by names of their own."""
    return f"SELECT '{number}/' || source_id AS source_id, seq_nr FROM ({query}) AS q"


async def seen(database: Database, reading: dict[str, int]) -> dict[str, Audit]:
    """Handlers have seen what matched, first in its order; what one did not bear is among the dead letters."""
    found = {}
    for handler, number in reading.items():
        if handler != "published":
            expected = _MATCHED.format(number=number)
            handled = _SEEN.format(handler=handler, which=_IN_ORDER)
            found |= await audit(database, f"{expected} AND {_IN_ORDER}", database, handled, name=handler)
            assert await keys(database, _UNSEEN.format(number=number, handler=handler)) == set()
    number = reading["published"]
    dead = await keys(database, _DEAD)
    assert await keys(database, _POISON.format(number=number)) <= dead
    assert await keys(database, _UNSEEN.format(number=number, handler="published")) <= dead
    return found
