"""A condition that fails where it is asked is set apart and reported; nothing else is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from journal import Database, DatabaseError, Event, append
from projections.subscriptions.matching import Matching, _Asking, _Events, _is_of_no_condition
from tests.fixtures.projections import until
from tests.integration.matching_support import (
    QUARANTINED,
    execute,
    fetchval,
    happened,
    match,
    matched,
    matches,
    publish,
    subscribe,
    tend,
)

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
SLOW = "e.seq_nr > 0 AND factorial(30000) > 0"
ERRORS = [
    ("(e.payload->>'n')::int > 0", {"n": "x"}, "invalid input syntax"),
    ("1 / (e.payload->>'n')::int > 0", {"n": 0}, "division by zero"),
    ("e.payload->>'n' ~ '('", {"n": "x"}, "parentheses"),
    ("(e.payload->>'n')::timestamptz > now()", {"n": "2020-13-01"}, "out of range"),
    ("10::numeric ^ (e.payload->>'n')::int > 0", {"n": 1_000_000}, "overflow"),
    ("substr('x', 1, (e.payload->>'n')::int) = ''", {"n": -1}, "negative"),
    ("(e.payload->>'n')::jsonpath IS NULL", {"n": "$$$"}, "jsonpath"),
]


@pytest.mark.parametrize(("condition", "payload", "error"), ERRORS)
async def test_one_that_fails_is_set_apart_and_the_others_go_on(
    database: Database,
    condition: str,
    payload: dict[str, object],
    error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await subscribe(database, condition, group="bad")
    await subscribe(database, "e.seq_nr > 0", group="good")
    await subscribe(database, group="plain")
    await happened(database, payload=payload)
    await happened(database, payload={"n": 1})

    await match(database)

    assert [(group, seq_nr) for group, _, seq_nr, _ in await matches(database)] == [
        ("good", 1), ("plain", 1), ("good", 2), ("plain", 2),
    ]  # fmt: skip
    assert error in await fetchval(
        database, "SELECT error FROM projections.conditions WHERE quarantined_at IS NOT NULL"
    )
    assert [r.levelname for r in caplog.records if getattr(r, "action", None) == "condition_quarantined"] == [
        "ERROR"
    ]


async def test_one_that_takes_too_long_is_set_apart_and_the_others_go_on(database: Database) -> None:
    bad = await subscribe(database, SLOW)
    good = await subscribe(database, "e.seq_nr > 0")
    for _ in range(3):
        await happened(database)

    await match(database, timeout=0.05)

    assert [ids for *_, ids in await matches(database)] == [[good]] * 3
    assert "timeout" in await fetchval(
        database,
        "SELECT error FROM projections.conditions JOIN projections.subscriptions USING (condition_id) "
        "WHERE subscription_id = $1",
        bad,
    )


async def test_conditions_that_take_long_together_are_not_to_blame(database: Database) -> None:
    for number in range(14):
        await subscribe(database, f"{number} = {number} AND factorial(8000) > 0 AND e.seq_nr > 0")
    await happened(database)

    await match(database, timeout=1)

    assert await fetchval(database, QUARANTINED) == 0
    assert await matched(database) == [("a", 1)]


async def test_one_of_types_that_fails_is_set_apart(database: Database) -> None:
    await subscribe(database, "e.topic::int > 0", group="bad")
    await subscribe(database, "e.topic = 't'", group="good")
    await happened(database)

    await match(database)

    assert [group for group, *_ in await matches(database)] == ["good"]
    assert await fetchval(database, QUARANTINED) == 1


@pytest.mark.parametrize(
    ("narrow", "condition"),
    [
        ({"topics": ["numbers"]}, "(e.payload->>'n')::int > 0"),
        ({"topics": ["numb*"]}, "(e.payload->>'n')::int > 0"),
        ({"entity_types": ["number"]}, "(e.payload->>'n')::int > 0"),
        ({"topics": ["1.t"]}, "split_part(e.topic, '.', 1)::int > 0"),
        ({"topics": ["1.*"]}, "split_part(e.topic, '.', 1)::int > 0"),
    ],
)
async def test_none_is_asked_about_what_its_subscriptions_do_not_want(
    database: Database, narrow: dict[str, object], condition: str
) -> None:
    """Where it would fail."""
    await subscribe(database, condition, **narrow)
    await happened(database, "texts", {"n": "x"})
    for topic in ("numbers", "1.t"):
        await happened(database, topic, {"n": 1}, source=topic, kind="number")

    await match(database)

    assert await fetchval(database, QUARANTINED) == 0
    assert {source_id for source_id, _ in await matched(database)} in (
        {"numbers"},
        {"1.t"},
        {"numbers", "1.t"},
    )


async def test_a_released_one_is_asked_about_what_comes(database: Database) -> None:
    await subscribe(database, "(e.payload->>'n')::int > 0")
    await happened(database, payload={"n": "x"})
    await match(database)

    assert await fetchval(database, "SELECT projections.release_condition_v1(1)")
    await happened(database, payload={"n": 2})
    await match(database)

    assert await matched(database) == [("a", 2)]
    assert await fetchval(database, "SELECT error IS NULL FROM projections.conditions")
    assert not await fetchval(database, "SELECT projections.release_condition_v1(1)")


async def test_one_is_set_apart_for_all_its_subscriptions_and_no_other(database: Database) -> None:
    for params in ("{}", '{"x": 1}'):
        await subscribe(database, "(e.payload->>'n')::int > 0", params=params)
    await subscribe(database, "(e.payload->>'n')::int > -1", topics=["other"])
    await happened(database, payload={"n": "x"})
    await match(database)
    await happened(database, "other", {"n": 1})

    await match(database)

    assert await fetchval(database, QUARANTINED) == 1
    assert await matched(database) == [("a", 2)]


async def test_payloads_that_jsonb_can_not_hold_are_null_and_the_others_are_seen(database: Database) -> None:
    await subscribe(database, "e.payload->>'n' = '1'", group="seen")
    await subscribe(database, "e.payload IS NULL", group="unseen")
    await happened(database, payload={"n": 1})
    await execute(database, "SELECT projections.append_event_v1('a', 'plane', 't', '{\"n\": 1e999999}')")
    # Stored as history may be.
    await execute(
        database,
        'UPDATE projections.events SET metadata = \'{"n": "\\u0000"}\'::json WHERE seq_nr = 1',
    )
    await happened(database, payload={"n": 1})

    await match(database)

    assert [(group, seq_nr) for group, _, seq_nr, _ in await matches(database)] == [
        ("seen", 1), ("unseen", 2), ("seen", 3),
    ]  # fmt: skip
    assert await fetchval(database, QUARANTINED) == 0


async def test_one_that_fails_for_an_event_that_is_due_is_set_apart(database: Database) -> None:
    await subscribe(database, "(e.payload->>'n')::int > 0 OR 1 / (e.seq_nr - 1) > 0", group="bad")
    await subscribe(database, "e.seq_nr > 0", group="good")
    await publish(database, "t", not_before=[datetime(2020, 1, 1, tzinfo=UTC)])

    await tend(database)

    assert [group for group, *_ in await matches(database)] == ["good"]
    assert await fetchval(database, QUARANTINED) == 1


@pytest.mark.slow
async def test_what_grows_to_the_limit_fails_alone(database: Database) -> None:
    """Texts of arrays of texts of arrays double their quotes; one value takes at most 1 GB."""
    grown = "e.payload::text"
    for _ in range(12):
        grown = f"ARRAY[{grown}]::text"
    await subscribe(database, f"length({grown}) > 0", group="bad")
    await subscribe(database, "e.seq_nr > 0", group="good")
    await happened(database, payload={"quotes": '"' * 300_000})

    await match(database)

    assert [group for group, *_ in await matches(database)] == ["good"]


@pytest.mark.slow
async def test_payloads_that_take_long_to_read_are_no_conditions_fault(database: Database) -> None:
    """80 MB of JSON in a batch, and a condition that has 200 ms."""
    await subscribe(database, "e.payload ? 'x'")
    same = "array_fill({}::text, ARRAY[40])"
    values = ", ".join(
        same.format(v) for v in ("'a'", "'plane'", "'t'", "json_build_object('x', repeat('a', 2000000))")
    )
    await execute(database, f"SELECT projections.append_events_v1({values})")

    await match(database, timeout=0.2)

    assert await fetchval(database, QUARANTINED) == 0
    assert [n for _, n in await matched(database)] == list(range(1, 41))


async def test_a_cancelled_batch_of_due_events_is_matched_again(database: Database) -> None:
    """An error that is no condition's sets none apart, and what it undid is done by the next."""
    await subscribe(database, "e.seq_nr > 0")
    await publish(database, "t", not_before=[datetime.now(UTC) - timedelta(seconds=1)])
    await execute(database, "ALTER TABLE projections.matches ADD CONSTRAINT never CHECK (FALSE) NOT VALID")
    async with database.session() as session:
        with pytest.raises(Exception, match="never"):
            await Matching().tend(session)
    await execute(database, "ALTER TABLE projections.matches DROP CONSTRAINT never")

    await tend(database)

    assert await fetchval(database, QUARANTINED) == 0
    assert await matched(database) == [("publisher/p", 1)]


async def test_events_of_one_source_match_in_order_across_a_failure(database: Database) -> None:
    await subscribe(database)
    await subscribe(database, "1 / (e.payload->>'n')::int >= 0")
    async with database.transaction() as session:
        await append(session, [Event("a", {"n": n}, "plane", event_type="t") for n in (1, 2, 0, 3)])

    await match(database)

    assert await matched(database) == [("a", n) for n in (1, 2, 3, 4)]


async def test_a_statement_that_somebody_cancels_is_no_fault_of_a_condition(database: Database) -> None:
    """Before its time is over: nothing is known of the condition that was asked."""
    async with database.session() as session, database.session() as holder:
        asking = _Asking(session, _Events("plane", [], [], [], [], []), timedelta(minutes=5))
        await holder.begin()
        await holder.fetchval("SELECT pg_advisory_xact_lock(7)")
        await session.begin()
        waiting = asyncio.create_task(
            asking._try(timedelta(minutes=5), partial(session.fetchval, "SELECT pg_advisory_xact_lock(7)"))
        )
        await until(database, f"SELECT EXISTS ({WAITING})")
        await fetchval(database, f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) AS w")
        with pytest.raises(DatabaseError, match="user request") as cancelled:
            await waiting
        with pytest.raises(DatabaseError, match="timeout") as too_slow:
            await asking._try(timedelta(milliseconds=20), partial(session.fetchval, "SELECT pg_sleep(60)"))
        await session.rollback()

    assert _is_of_no_condition(cancelled.value)
    assert not _is_of_no_condition(too_slow.value)
