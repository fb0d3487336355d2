"""What the monitor's page is sent of groups, and what its buttons do with them."""

from __future__ import annotations

from typing import Any

import pytest

from journal import Database
from projections.monitoring.web.snapshot_json import DEAD_LISTED
from projections.subscriptions import create_group, subscribe
from tests.fixtures.monitor import act_alone, first, monitoring
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.subscriptions import landed_and_matched

FAIL = "SELECT projections.fail_batch_v1('g', 'h', 2, $1, $2::text::interval, $3)"
DEAD = "SELECT array_agg(retry_id ORDER BY retry_id) FROM projections.group_retries WHERE due_at IS NULL"


@pytest.fixture
async def group(database: Database) -> Database:
    """Group g in two ranges with a match, two dead letters and a batch that waits; a condition that is set apart."""
    async with database.transaction() as session:
        await create_group(session, "g", ranges=2)
        await subscribe(session, "g", topics=["Landed"])
        await subscribe(session, "g", condition="e.seq_nr > 1")
    await landed_and_matched(database, "a")
    for number, (error, delay) in enumerate([("why", None), ("x" * 3000, None), ("late", "1 hour")]):
        await execute(database, FAIL, error, delay, f'[{{"match_id": {number}}}]')
    await execute(database, "SELECT projections._quarantine_condition_v1(1, 'division by zero')")
    return database


@pytest.mark.slow
async def test_the_stream_tells_of_groups_and_their_ranges(group: Database) -> None:
    async with monitoring(group) as client:
        found = await first(client)

    (told,) = found["groups"]
    assert (told["name"], told["state"], told["backlog"], told["readers"]) == ("g", "unread", 1, [])
    assert [(part["first"], part["last"], part["backlog"]) for part in told["ranges"]] == [
        (0, 511, 1),
        (512, 1023, 0),
    ]
    assert (told["retries"], told["dead_total"], told["without_reader"]) == (1, 2, 2)
    assert (told["catching_up"], told["caught_up_to"], told["remaining"]) == (0, None, 0)


async def test_the_stream_tells_of_dead_letters_with_their_errors_cut(group: Database) -> None:
    async with monitoring(group) as client:
        (told,) = (await first(client))["groups"]

    assert [(one["id"], one["handler"], one["attempts"], one["events"]) for one in told["dead"]] == [
        (1, "h", 2, 1),
        (2, "h", 2, 1),
    ]
    assert [len(one["error"]) for one in told["dead"]] == [3, 2000]


async def test_of_many_dead_letters_the_others_are_counted(group: Database) -> None:
    for number in range(100, 100 + DEAD_LISTED):
        await execute(group, FAIL, "why", None, f'[{{"match_id": {number}}}]')

    async with monitoring(group) as client:
        (told,) = (await first(client))["groups"]

    assert (len(told["dead"]), told["dead_total"]) == (DEAD_LISTED, DEAD_LISTED + 2)


async def test_the_stream_tells_of_conditions_that_are_set_apart(group: Database) -> None:
    async with monitoring(group) as client:
        found = await first(client)

    (told,) = found["quarantined"]
    assert (told["sql"], told["error"], told["groups"], told["subscriptions"]) == (
        "e.seq_nr > 1", "division by zero", ["g"], 1,
    )  # fmt: skip
    assert found["quarantined_total"] == 1


async def test_a_group_is_rescaled(group: Database) -> None:
    answered = await act_alone(group, "rescale-group", group="g", ranges=5)

    assert answered.json() == {"done": "g is cut into 5 ranges"}
    assert await fetchval(group, "SELECT count(*) FROM projections.group_ranges") == 5


@pytest.mark.slow
async def test_a_dead_letter_is_retried(group: Database) -> None:
    answered = await act_alone(group, "retry-dead-letter", group="g", retry_id=1)

    assert answered.json() == {"done": "dead letter 1 of g is handled again"}
    assert await fetchval(group, DEAD) == [2]


@pytest.mark.slow
async def test_a_dead_letter_is_dropped(group: Database) -> None:
    answered = await act_alone(group, "drop-dead-letter", group="g", retry_id=2)

    assert answered.json() == {"done": "dead letter 2 of g is dropped"}
    assert await fetchval(group, "SELECT count(*) FROM projections.group_retries") == 2


@pytest.mark.slow
@pytest.mark.parametrize("action", ["retry-dead-letter", "drop-dead-letter"])
async def test_what_is_not_dead_any_more_is_left_alone(group: Database, action: str) -> None:
    answered = await act_alone(group, action, group="g", retry_id=3)

    assert (answered.status_code, "not a dead letter" in answered.json()["error"]) == (409, True)
    assert await fetchval(
        group, "SELECT due_at > clock_timestamp() FROM projections.group_retries WHERE retry_id = 3"
    )


@pytest.mark.slow
async def test_a_condition_is_released_once(group: Database) -> None:
    first, second = (
        await act_alone(group, "release", condition_id=1),
        await act_alone(group, "release", condition_id=1),
    )

    assert first.json() == {"done": "condition 1 is asked again"}
    assert (second.status_code, second.json()["error"]) == (409, "condition 1 is not stopped any more")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("rescale-group", {"group": "x", "ranges": 2}, 404),
        ("rescale-group", {"group": "g", "ranges": 0}, 400),
        ("rescale-group", {"projection": "g", "ranges": 2}, 400),
        ("retry-dead-letter", {"group": "x", "retry_id": 1}, 404),
        ("retry-dead-letter", {"group": "g"}, 400),
        ("drop-dead-letter", {"group": "g", "retry_id": 2**63}, 400),
        ("release", {"condition_id": "1"}, 400),
    ],
)
async def test_what_can_not_be_is_refused_and_changes_nothing(
    group: Database, action: str, body: dict[str, Any], status: int
) -> None:
    answered = await act_alone(group, action, **body)

    assert answered.status_code == status
    assert answered.json()["error"]
    assert await fetchval(group, DEAD) == [1, 2]
    assert await fetchval(group, "SELECT count(*) FROM projections.group_ranges") == 2


@pytest.mark.slow
async def test_actions_of_groups_come_from_the_page_alone(group: Database) -> None:
    async with monitoring(group) as client:
        answered = [
            await client.post(f"/actions/{name}", json={})
            for name in ("retry-dead-letter", "drop-dead-letter", "release")
        ]

    assert [one.status_code for one in answered] == [403] * 3
