"""Conditions that look at no subscription are asked once for each event; whoever wants it gets what they say."""

from __future__ import annotations

import json

import pytest

from journal import Database
from tests.fixtures.matching import happened, match, matches, subscribe
from tests.fixtures.projections import execute, fetchval

LATE = "e.payload ->> 'late' = 'yes'"
OF_PARAMS = "e.payload @> s.params"
# How the function of a condition was made says whom it is asked for.
ASKED_ALONE = "SELECT prosrc !~ 'subscriptions_at_hand' FROM pg_proc WHERE proname = 'condition_' || $1"
# A second is what a subscription reaches back otherwise.
AFTER_ALL = """
UPDATE projections.subscriptions
SET since = (SELECT max(e.db_timestamp) FROM projections.events AS e) + interval '1 microsecond'
WHERE subscription_id = $1
"""
CONDITION = "SELECT condition_id FROM projections.subscriptions WHERE subscription_id = $1"


async def asked_alone(database: Database, condition: str) -> bool:
    """Whether a condition is asked without any subscription."""
    number = await subscribe(database, condition)
    alone: bool = await fetchval(database, ASKED_ALONE, str(await fetchval(database, CONDITION, number)))
    return alone


@pytest.mark.parametrize(
    "condition", [LATE, "e.seq_nr > 1", "EXISTS (SELECT FROM unnest(e.tags) AS s WHERE s = 'x')"]
)
async def test_a_condition_that_looks_at_no_subscription_is_asked_without_any(
    database: Database, condition: str
) -> None:
    assert await asked_alone(database, condition)


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        OF_PARAMS, "e.payload = params", "e.seq_nr > 1 AND group_id > 0", "e.seq_nr > 1 AND s IS NOT NULL",
        "EXISTS (SELECT FROM unnest(e.tags) AS t WHERE t = s.params ->> 'tag')",
        "EXISTS (SELECT FROM unnest(s.topics) AS t WHERE t = e.payload ->> 'topic')",
    ],
)  # fmt: skip
async def test_a_condition_that_looks_at_the_subscription_is_asked_with_each(
    database: Database, condition: str
) -> None:
    assert not await asked_alone(database, condition)


@pytest.mark.slow
@pytest.mark.parametrize("other", [None, OF_PARAMS], ids=["none is asked alone", "one is asked alone"])
async def test_what_several_ways_lead_to_one_group_is_one_row_in_order(
    database: Database, other: str | None
) -> None:
    everything = await subscribe(database)
    every_late = await subscribe(database, LATE, params='{"n": 1}')
    late = [await subscribe(database, LATE, params=json.dumps({"n": n}), topics=["t", "u"]) for n in (2, 3)]
    like = await subscribe(database, "e.seq_nr > 1", topics=["u*"])
    of_params = [await subscribe(database, other, params='{"late": "yes"}')] if other else []
    elsewhere = await subscribe(database, LATE, group="h", topics=["u"])
    for topic, payload in [("t", {"late": "yes"}), ("u", {"late": "yes"}), ("u", {}), ("v", {"late": "yes"})]:
        await happened(database, topic, payload)

    await match(database)

    assert await matches(database) == [
        ("g", "a", 1, [everything, every_late, *late, *of_params]),
        ("g", "a", 2, [everything, every_late, *late, like, *of_params]),
        ("h", "a", 2, [elsewhere]),
        ("g", "a", 3, [everything, like]),
        ("g", "a", 4, [everything, every_late, *of_params]),
    ]


async def test_a_subscription_gets_nothing_from_before_it_by_a_condition_that_is_asked_alone(
    database: Database,
) -> None:
    first = await subscribe(database, LATE)
    await happened(database, payload={"late": "yes"})
    second = await subscribe(database, LATE, params='{"n": 2}', topics=["t"])
    await execute(database, AFTER_ALL, second)
    await happened(database, payload={"late": "yes"})

    await match(database)

    assert await matches(database) == [("g", "a", 1, [first]), ("g", "a", 2, [first, second])]


@pytest.mark.slow
async def test_subscriptions_that_leave_or_come_are_noticed_between_batches(database: Database) -> None:
    first = await subscribe(database, LATE)
    second = await subscribe(database, LATE, params='{"n": 2}')
    await happened(database, payload={"late": "yes"})
    await match(database)
    await execute(database, "SELECT projections.unsubscribe_v1($1)", first)
    third = await subscribe(database, LATE, params='{"n": 3}')
    await happened(database, payload={"late": "yes"})
    await match(database)

    assert await matches(database) == [("g", "a", 1, [first, second]), ("g", "a", 2, [second, third])]
