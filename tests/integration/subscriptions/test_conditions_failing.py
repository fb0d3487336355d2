"""An event that a condition fails on waits; a condition that fails on most is stopped; nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from journal import Database, DatabaseError, Event, append
from projections.subscriptions.conditions import Asked, AskedOf, _is_of_no_condition
from projections.subscriptions.matching import Matching
from tests.fixtures.matching import (
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
from tests.fixtures.projections import until

UNANSWERED = """
(SELECT seq_nr, error FROM projections.unanswered ORDER BY unanswered_id)
UNION ALL
(SELECT n.seq_nr, NULL FROM projections.unasked AS u, unnest(u.seq_nrs) WITH ORDINALITY AS n (seq_nr, place)
ORDER BY u.page_id, n.place)
"""
RELEASE = "SELECT projections._release_condition_v1(1)"
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
SLOW_WHERE = "factorial(coalesce((e.payload->>'slow')::int, 1)) > 0"
SLOW = "e.seq_nr > 0 AND factorial(30000) > 0"
ERRORS = [
    ("(e.payload->>'n')::int > 0", {"n": "x"}, "invalid input syntax"),
    ("1 / (e.payload->>'n')::int > 0", {"n": 0}, "division by zero"),
    ("e.payload->>'n' ~ (e.payload->>'n')", {"n": "("}, "parentheses"),
    ("(e.payload->>'n')::timestamptz > now()", {"n": "2020-13-01"}, "out of range"),
    ("10::numeric ^ (e.payload->>'n')::int > 0", {"n": 1_000_000}, "overflow"),
    ("substr('x', 1, (e.payload->>'n')::int) = ''", {"n": -1}, "negative"),
    ("(e.payload->>'n')::jsonpath IS NULL", {"n": "$$$"}, "jsonpath"),
]


async def unanswered(database: Database) -> list[tuple[int, str | None]]:
    """The events that wait for a condition, and why; None: it was stopped."""
    async with database.session() as session:
        return [(row["seq_nr"], row["error"]) for row in await session.fetch(UNANSWERED)]


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "payload", "error"), ERRORS)
async def test_an_event_that_a_condition_fails_on_waits_and_all_others_are_matched(
    database: Database,
    condition: str,
    payload: dict[str, object],
    error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before it and after it, in the same batch and in the next, for that condition and for others."""
    await subscribe(database, f"e.payload ? 'm' OR {condition}", group="bad")
    await subscribe(database, "e.seq_nr > 0", group="good")
    await subscribe(database, group="plain")
    for value in ({"m": 1}, payload, {"m": 1}):
        await happened(database, payload=value)
    await match(database)
    await happened(database, payload={"m": 1})

    await match(database)

    assert {(group, seq_nr) for group, _, seq_nr, _ in await matches(database)} == {
        *(("good", n) for n in (1, 2, 3, 4)), *(("plain", n) for n in (1, 2, 3, 4)), *(("bad", n) for n in (1, 3, 4)),
    }  # fmt: skip
    assert [(n, error in str(why)) for n, why in await unanswered(database)] == [(2, True)]
    assert await fetchval(database, QUARANTINED) == 0
    assert [r.levelname for r in caplog.records if getattr(r, "action", None) == "condition_failed"] == [
        "WARNING"
    ]


@pytest.mark.slow
async def test_one_bad_event_of_many_costs_that_one_alone(database: Database) -> None:
    condition = await subscribe(database, "(e.payload->>'n')::int % 2 = 0")
    async with database.transaction() as session:
        await append(
            session,
            [Event("a", {"n": "x" if n in (7, 900) else n}, "plane", event_type="t") for n in range(1, 1001)],
        )

    await match(database)

    assert [ids for *_, ids in await matches(database)] == [[condition]] * 499  # 2 to 1000, without 900
    assert [n for n, _ in await unanswered(database)] == [7, 900]


@pytest.mark.slow
async def test_one_that_takes_too_long_for_an_event_is_asked_about_the_others(database: Database) -> None:
    """And whoever is asked with it gets its answers in the order of the events."""
    bad = await subscribe(database, SLOW_WHERE)
    good = await subscribe(database, "e.seq_nr > 0")
    async with database.transaction() as session:
        await append(
            session,
            [Event("a", {"slow": 30000} if n == 40 else {}, "plane", event_type="t") for n in range(1, 61)],
        )

    await match(database, timeout=0.2)

    found = await matches(database)
    assert [(n, ids) for _, _, n, ids in found] == [
        (n, [good] if n == 40 else [bad, good]) for n in range(1, 61)
    ]
    ((place, why),) = await unanswered(database)
    assert place == 40
    assert "timeout" in str(why)
    assert await fetchval(database, QUARANTINED) == 0


@pytest.mark.slow
async def test_one_that_takes_too_long_for_event_after_event_is_stopped(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await subscribe(database, SLOW)
    good = await subscribe(database, "e.seq_nr > 0")
    for _ in range(5):
        await happened(database)

    await match(database, timeout=0.2)

    assert [ids for *_, ids in await matches(database)] == [[good]] * 5
    assert [(n, why is None) for n, why in await unanswered(database)] == [
        (1, False), (2, False), (3, False), (4, True), (5, True),
    ]  # fmt: skip
    assert "timeout" in await fetchval(
        database, "SELECT error FROM projections.conditions WHERE quarantined_at IS NOT NULL"
    )
    assert [r.levelname for r in caplog.records if getattr(r, "action", None) == "condition_quarantined"] == [
        "ERROR"
    ]


@pytest.mark.slow
async def test_one_that_holds_up_all_others_is_stopped_though_it_answers_in_time(database: Database) -> None:
    """It takes a quarter of its time for each event."""
    await execute(
        database,
        "CREATE FUNCTION public.helped(n bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS "
        "'BEGIN PERFORM pg_sleep(0.05); RETURN TRUE; END'",
    )
    await execute(database, "GRANT EXECUTE ON FUNCTION public.helped TO projections_matcher")
    await subscribe(database, "public.helped(e.seq_nr)", group="slow")
    await subscribe(database, group="plain")
    async with database.transaction() as session:
        await append(session, [Event("a", {}, "plane", event_type="t") for _ in range(30)])

    await match(database, timeout=0.2)

    found = await matches(database)
    assert await fetchval(database, QUARANTINED) == 1
    assert [n for group, _, n, _ in found if group == "plain"] == list(range(1, 31))
    asked = [n for group, _, n, _ in found if group == "slow"]
    assert sorted(asked + [n for n, _ in await unanswered(database)]) == list(range(1, 31))


@pytest.mark.slow
async def test_a_condition_that_many_share_is_not_to_blame_for_a_full_batch(database: Database) -> None:
    """What all its subscriptions ask of all events takes many times the limit: each event takes a part of it."""
    async with database.session() as session:
        ids = [
            row["id"] for row in await session.fetch(
                "SELECT projections.subscribe_v1('g', 'e.payload @> s.params', jsonb_build_object('n', n)) AS id "
                "FROM generate_series(1, 300) AS n ORDER BY n"
            )
        ]  # fmt: skip
    async with database.transaction() as session:
        await append(session, [Event("a", {"n": n % 300 + 1}, "plane", event_type="t") for n in range(3000)])

    await match(database, timeout=0.2)

    assert await fetchval(database, QUARANTINED) == 0
    assert await unanswered(database) == []
    assert [ids for *_, ids in await matches(database)] == [[ids[n % 300]] for n in range(3000)]


@pytest.mark.slow
async def test_conditions_that_take_long_together_are_not_to_blame(database: Database) -> None:
    for number in range(14):
        await subscribe(database, f"{number} = {number} AND factorial(8000) > 0 AND e.seq_nr > 0")
    await happened(database)

    await match(database, timeout=1)

    assert await fetchval(database, QUARANTINED) == 0
    assert await matched(database) == [("a", 1)]


@pytest.mark.slow
async def test_one_of_types_fails_on_the_events_of_a_type(database: Database) -> None:
    await subscribe(database, "e.topic::int > 0", group="bad")
    await subscribe(database, "e.topic = 't'", group="good")
    for topic in ("t", "1", "t"):
        await happened(database, topic)

    await match(database)

    assert [(group, n) for group, _, n, _ in await matches(database)] == [
        ("good", 1),
        ("bad", 2),
        ("good", 3),
    ]
    assert [n for n, _ in await unanswered(database)] == [1, 3]
    assert await fetchval(database, QUARANTINED) == 0


@pytest.mark.slow
async def test_one_of_types_that_takes_too_long_is_stopped_at_once(database: Database) -> None:
    await subscribe(database, "e.topic = 't' AND factorial(30000) > 0", group="bad")
    await subscribe(database, "e.topic = 't'", group="good")
    for _ in range(2):
        await happened(database)

    await match(database, timeout=0.2)

    assert [(group, n) for group, _, n, _ in await matches(database)] == [("good", 1), ("good", 2)]
    assert await unanswered(database) == [(1, None), (2, None)]
    assert await fetchval(database, QUARANTINED) == 1


@pytest.mark.slow
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


@pytest.mark.slow
async def test_one_that_fails_on_most_is_stopped_and_catches_up_when_it_is_released(
    database: Database,
) -> None:
    """In the order of the events, those that it failed on included, and before what comes later."""
    await execute(
        database,
        "CREATE FUNCTION public.helped(n text) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT n::int > 0'",
    )
    await execute(database, "GRANT EXECUTE ON FUNCTION public.helped TO projections_matcher")
    await subscribe(database, "public.helped(e.payload->>'n')")
    for kind in ("plane", "ship"):
        await happened(database, payload={"n": 1}, source=kind, kind=kind)
        for _ in range(11):
            await happened(database, payload={"n": "x"}, source=kind, kind=kind)
        await match(database)
    assert await fetchval(database, QUARANTINED) == 1
    assert await matched(database) == [("plane", 1)]
    await execute(
        database,
        "CREATE OR REPLACE FUNCTION public.helped(n text) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT TRUE'",
    )
    await tend(database)
    assert await matched(database) == [("plane", 1)]

    assert await fetchval(database, RELEASE)
    await happened(database, payload={"n": "x"}, source="plane")
    async with database.session() as session:
        await session.execute("UPDATE projections.unanswered SET due = due")  # nobody has come by yet
    await match(database)
    await tend(database)

    assert sorted(await matched(database)) == [
        *(("plane", n) for n in range(1, 14)),
        *(("ship", n) for n in range(1, 13)),
    ]
    assert [n for source, n in await matched(database) if source == "plane"] == list(range(1, 14))
    assert [n for source, n in await matched(database) if source == "ship"] == list(range(1, 13))
    assert await unanswered(database) == []
    assert not await fetchval(database, RELEASE)


@pytest.mark.slow
async def test_an_event_that_one_failed_on_is_matched_when_it_is_tried_again(database: Database) -> None:
    """For the subscriptions that were there when it was committed."""
    await execute(
        database,
        "CREATE FUNCTION public.helped(n text) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT n::int > 0'",
    )
    await execute(database, "GRANT EXECUTE ON FUNCTION public.helped TO projections_matcher")
    there = await subscribe(database, "public.helped(e.payload->>'n')")
    await happened(database, payload={"n": "x"})
    await match(database)
    await execute(database, "UPDATE projections.subscriptions SET since = since - interval '1 hour'")
    await subscribe(database, "public.helped(e.payload->>'n')", params='{"late": true}')
    await execute(database, "UPDATE projections.subscriptions SET since = now() WHERE params <> '{}'")
    retry = "SELECT projections._retry_unanswered_v1(unanswered_id) FROM projections.unanswered"

    assert await fetchval(database, retry)
    await tend(database)
    assert [n for n, why in await unanswered(database) if why] == [1]  # it has failed again
    await execute(
        database,
        "CREATE OR REPLACE FUNCTION public.helped(n text) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT TRUE'",
    )
    assert await fetchval(database, retry)
    await tend(database)

    assert [ids for *_, ids in await matches(database)] == [[there]]
    assert await unanswered(database) == []


@pytest.mark.slow
async def test_what_waits_is_worked_off_in_parts_where_that_takes_long(database: Database) -> None:
    await subscribe(database, SLOW_WHERE)
    await execute(database, "SELECT projections._quarantine_condition_v1(1, 'why')")
    async with database.transaction() as session:
        await append(
            session,
            [Event("a", {"slow": 30000} if n == 20 else {}, "plane", event_type="t") for n in range(1, 31)],
        )
    await match(database)
    assert len(await unanswered(database)) == 30
    matching = Matching(condition_timeout=timedelta(milliseconds=200))

    assert await fetchval(database, RELEASE)
    async with database.session() as session:
        while await session.fetchval("SELECT EXISTS (SELECT FROM projections._conditions_apart_v1())"):
            await matching.tend(session)

    assert [n for _, n in await matched(database)] == [n for n in range(1, 31) if n != 20]
    assert [n for n, _ in await unanswered(database)] == [20]


@pytest.mark.slow
async def test_what_one_event_was_found_to_bring_about_is_not_said_of_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody gives the event up, or another process works it off, while it is asked about alone."""
    await subscribe(database, SLOW_WHERE)
    for payload in ({"slow": 30000}, {"slow": "x"}):
        await happened(database, payload=payload)
    await match(database, timeout=0.2)
    await execute(database, "UPDATE projections.events SET payload = '{}' WHERE seq_nr = 2")
    ask_each = Asked._ask_each

    async def and_drop(asked: Asked, suspects: Sequence[Any]) -> Any:
        failed = await ask_each(asked, suspects)
        if failed[0]:
            await execute(
                database,
                "SELECT projections._drop_unanswered_v1(min(unanswered_id)) FROM projections.unanswered",
            )
        return failed

    monkeypatch.setattr(Asked, "_ask_each", and_drop)
    assert await fetchval(database, RELEASE)

    matching = Matching(condition_timeout=timedelta(seconds=0.2))
    async with database.session() as session:
        for _ in range(3):
            await matching.tend(session)

    assert await unanswered(database) == []
    assert await matched(database) == [("a", 2)]


@pytest.mark.slow
async def test_a_condition_fails_for_itself_alone(database: Database) -> None:
    for params in ("{}", '{"x": 1}'):
        await subscribe(database, "(e.payload->>'n')::int > 0", params=params)
    await subscribe(database, "(e.payload->>'n')::int > -1", topics=["other"])
    await happened(database, payload={"n": "x"})
    await match(database)
    await happened(database, "other", {"n": 1})

    await match(database)

    assert await fetchval(database, QUARANTINED) == 0
    assert [ids for *_, ids in await matches(database)] == [[1, 2, 3]]
    assert [n for n, _ in await unanswered(database)] == [1]


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


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    "condition", ["1 / (e.seq_nr - 2) < 0", "factorial(CASE e.seq_nr WHEN 1 THEN 1 ELSE 30000 END) > 0"]
)
async def test_an_event_that_is_due_and_that_one_fails_on_waits(database: Database, condition: str) -> None:
    await subscribe(database, condition, group="bad")
    await subscribe(database, "e.seq_nr > 0", group="good")
    await publish(database, "t", "t", not_before=[datetime(2020, 1, 1, tzinfo=UTC)] * 2)

    async with database.session() as session:
        await Matching(condition_timeout=timedelta(milliseconds=200)).tend(session)

    assert [(group, n) for group, _, n, _ in await matches(database)] == [
        ("bad", 1),
        ("good", 1),
        ("good", 2),
    ]
    assert [n for n, _ in await unanswered(database)] == [2]
    assert await fetchval(database, QUARANTINED) == 0


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
    """An error that is not a condition's sets none apart, and what it undid is done by the next."""
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
        asking = Asked(session, AskedOf([]), timedelta(minutes=5))
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
