"""Outcomes that are being stored while others claim from the same endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from journal import Database, DatabaseError, OwnedSession
from projections.webhooks.claims import Claimed
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, outcome, states, take

_FINISH = "SELECT projections._finish_deliveries_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)"


async def finish(session: OwnedSession, claimed: Sequence[Claimed], verdict: str, **rest: Any) -> None:
    columns = map(list, zip(*(outcome(one, verdict, **rest) for one in claimed), strict=True))
    await session.fetch(_FINISH, *columns)


async def test_a_success_that_is_being_stored_holds_up_no_claim(database: Database) -> None:
    ep = await endpoint(database, "ep_1", max_in_flight=6)
    await deliver_events(database, ep, 10)
    held = await take(database, 4)
    async with database.transaction() as session:
        await finish(session, held, "done", delay=None)
        assert len(await take(database)) == 2  # its places are free when it has committed
    assert len(await take(database)) == 4
    assert await states(database, ep) == ["done"] * 4 + ["leased"] * 6


@pytest.mark.parametrize(
    ("verdict", "rest"), [("retry", {}), ("dead", {}), ("release", {}), ("done", {"disable": True})]
)
async def test_what_is_judged_is_judged_alone(database: Database, verdict: str, rest: dict[str, Any]) -> None:
    ep = await endpoint(database, "ep_1", max_in_flight=1000)
    await deliver_events(database, ep, 10)
    held = await take(database, 4)
    async with database.transaction() as session:
        await finish(session, held, verdict, **rest)
        assert await take(database) == []


async def test_an_order_goes_on_alone(database: Database) -> None:
    ep = await endpoint(database, "ep_1", max_in_flight=1000, ordering="key")
    await deliver_events(database, ep, 3, key="k")
    await deliver_events(database, ep, 3)
    (first,) = await take(database, 1)
    async with database.transaction() as session:
        await finish(session, [first], "done")
        assert await take(database) == []
    assert len(await take(database)) == 4


async def test_a_success_after_failures_is_judged(database: Database) -> None:
    ep = await endpoint(database, "ep_1", max_in_flight=1000)
    await deliver_events(database, ep, 10)
    await end_all(database, await take(database, 3), "retry")
    held = await take(database, 2)
    async with database.transaction() as session:
        await finish(session, held, "done")
        assert await take(database) == []
    assert await fetchval(database, "SELECT failures FROM projections.webhook_circuits") == 0


async def test_a_failure_and_a_success_that_are_stored_at_once(database: Database) -> None:
    """Both are stored, and the failure counts: it may well have come last."""
    ep = await endpoint(database, "ep_1", max_in_flight=1000)
    await deliver_events(database, ep, 2)
    one, two = await take(database)
    async with database.transaction() as session:
        await finish(session, [one], "retry")
        await end_all(database, [two], "done")
    assert await fetchval(database, "SELECT failures FROM projections.webhook_circuits") == 1
    assert await states(database, ep) == ["pending", "done"]


async def test_an_endpoint_is_not_removed_under_a_success(database: Database) -> None:
    ep = await endpoint(database, "ep_1", max_in_flight=1000)
    await deliver_events(database, ep, 2)
    held = await take(database)
    async with database.transaction() as session:
        await finish(session, held, "done")
        async with database.transaction() as other:
            await other.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(DatabaseError, match="lock timeout"):
                async with other.savepoint():
                    await other.execute("SELECT projections._remove_endpoint_v1(NULL, 'ep_1')")
    await execute(database, "SELECT projections._remove_endpoint_v1(NULL, 'ep_1')")
    assert await end_all(database, held, "done") == set()
