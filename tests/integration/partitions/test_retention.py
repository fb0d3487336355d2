"""Old partitions leave when their retention is over and everyone has read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from journal import Database, DatabaseError
from journal.partitions.dropping import UnreadRows
from projections.subscriptions import rewind_group, subscribe
from tests.fixtures.journal import count
from tests.fixtures.matching import match as match_all
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.retention import (
    DAY,
    HOUR,
    NAMES,
    PAST,
    filled,
    group,
    keep,
    kept_by,
    match,
    past,
    reader,
    retained,
)

WEEK = 7 * DAY


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


async def test_the_journal_keeps_everything_by_default(database: Database) -> None:
    await filled(database, retention=None)

    done = await retained(database)

    assert (done.dropped, done.kept) == ((), ())
    assert await kept_by(database) == dict.fromkeys(NAMES, ("kept forever",))


@pytest.mark.slow
async def test_partitions_that_nobody_needs_are_dropped_when_their_retention_is_over(
    journal: Database,
) -> None:
    done = await retained(journal)

    assert [(each.partition.name, each.problem) for each in done.dropped] == [(name, None) for name in NAMES]
    assert await past(journal) == []
    assert await count(journal) == 0


@pytest.mark.slow
async def test_partition_is_kept_until_its_retention_is_over(journal: Database) -> None:
    age = datetime.now(UTC) - (PAST + 2 * DAY)
    await keep(journal, "events", retention=age - HOUR)

    done = await retained(journal)

    assert [each.partition.name for each in done.dropped] == NAMES[:2]
    (reason,) = (await kept_by(journal))[NAMES[2]]
    assert reason.startswith("kept until ")


@pytest.mark.slow
async def test_projection_keeps_partitions_from_its_horizon_on(journal: Database) -> None:
    await reader(journal, PAST + DAY + HOUR)

    done = await retained(journal)

    assert [each.partition.name for each in done.dropped] == NAMES[:1]
    assert [each.name for each in done.kept] == NAMES[1:]
    assert await kept_by(journal) == dict.fromkeys(
        NAMES[1:], ("projection slow stands at 2020-01-02 01:00:00+00",)
    )


@pytest.mark.slow
async def test_partition_goes_when_the_horizon_is_at_its_end_exactly(journal: Database) -> None:
    await reader(journal, PAST + DAY)

    done = await retained(journal)

    assert [each.partition.name for each in done.dropped] == NAMES[:1]


async def test_the_slowest_range_of_a_projection_counts(journal: Database) -> None:
    await reader(journal, PAST + WEEK)
    await execute(
        journal,
        "INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice, horizon, import_id) "
        "SELECT projection_id, 512, 1023, $1, 99 FROM projections.projections",
        PAST + 2 * DAY,
    )

    assert list(await kept_by(journal)) == NAMES
    assert [name for name, holders in (await kept_by(journal)).items() if holders] == NAMES[2:]


async def test_projection_without_ranges_keeps_everything(journal: Database) -> None:
    await reader(journal, PAST + WEEK)
    await execute(journal, "DELETE FROM projections.projection_ranges")

    assert await kept_by(journal) == dict.fromkeys(NAMES, ("projection slow stands at -infinity",))


@pytest.mark.slow
async def test_projection_that_is_deleted_keeps_nothing(journal: Database) -> None:
    await reader(journal, PAST)
    await execute(journal, "DELETE FROM projections.projections WHERE name = 'slow'")

    assert await kept_by(journal) == dict.fromkeys(NAMES, ())


@pytest.mark.slow
async def test_import_that_was_not_read_keeps_its_time(journal: Database) -> None:
    number = await reader(journal, PAST + WEEK)
    await execute(
        journal,
        "INSERT INTO projections.imports (entity_type, from_timestamp, events) "
        "VALUES ('plane', $1, 1), ('ship', $2, 1)",
        PAST + DAY + HOUR,
        PAST,
    )

    assert await kept_by(journal) == {
        NAMES[0]: (),
        **dict.fromkeys(NAMES[1:], ("projection slow has not read an import from 2020-01-02 01:00:00+00",)),
    }
    await execute(
        journal, "UPDATE projections.projection_ranges SET import_id = 99 WHERE projection_id = $1", number
    )
    assert await kept_by(journal) == dict.fromkeys(NAMES, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "keeps"),
    [("folding", True), ("verified", True), ("swapped", False), ("cancelled", False), ("dropped", False)],
)
async def test_rebuild_keeps_everything_until_it_is_finished(
    journal: Database, state: str, keeps: bool
) -> None:
    number = await reader(journal, PAST + WEEK)
    await fetchval(
        journal,
        "SELECT projections._begin_rebuild_v1($1, 0, 1023, 1, $2, 0, '', 'rename', '{0}', '{1023}', '{}', '{}', '{}', "
        "'{}', '{plane}')",
        number,
        PAST + WEEK,
    )
    await execute(journal, "UPDATE projections.rebuilds SET state = $1", state)

    expected = (f"projection slow is being rebuilt (rebuild 1, {state})",) if keeps else ()
    assert await kept_by(journal) == dict.fromkeys(NAMES, expected)


@pytest.mark.slow
async def test_parked_source_keeps_its_event_and_those_behind_it(journal: Database) -> None:
    number = await reader(journal, PAST + WEEK)
    await execute(
        journal,
        "INSERT INTO projections.parked_sources (projection_id, source_id, slice, seq_nr, event_type, error, attempts) "
        "VALUES ($1, 'a', 97, 5, 'Happened', 'why', 1)",
        number,
    )

    assert await kept_by(journal) == {
        NAMES[0]: (),
        **dict.fromkeys(NAMES[1:], ("projection slow has 1 parked sources",)),
    }


async def test_directed_event_that_waits_keeps_its_partition_alone(journal: Database) -> None:
    await execute(
        journal,
        "INSERT INTO projections.directed_events (source_id, seq_nr, db_timestamp, slice, topic, not_before) "
        "VALUES ('a', 5, $1, 97, 'Happened', 'infinity')",
        PAST + DAY,
    )

    assert await kept_by(journal) == {
        NAMES[0]: (),
        NAMES[1]: ("1 directed and scheduled events wait",),
        NAMES[2]: (),
    }


@pytest.mark.slow
async def test_event_that_a_condition_has_not_answered_keeps_its_partition_alone(journal: Database) -> None:
    """Where it is for a reliable group."""
    subscribe = (
        "SELECT projections.subscribe_v1($1, 'e.seq_nr > 0', p_entity_types => '{none}', p_reliable => $2)"
    )
    await execute(journal, subscribe, "listening", False)
    await execute(
        journal,
        "INSERT INTO projections.unanswered "
        "(condition_id, entity_type, source_id, seq_nr, db_timestamp, slice, topic, as_of, error, due) "
        "VALUES (1, 'plane', 'a', 5, $1, 97, 'Happened', $1, 'why', TRUE)",
        PAST + DAY,
    )
    assert await kept_by(journal) == dict.fromkeys(NAMES, ())

    await execute(journal, subscribe, "reliable", True)

    assert await kept_by(journal) == {
        NAMES[0]: (),
        NAMES[1]: ("events wait for condition 1 of subscriptions",),
        NAMES[2]: (),
    }


@pytest.mark.slow
async def test_events_that_a_stopped_condition_was_not_asked_about_keep_their_partitions(
    journal: Database,
) -> None:
    """Where they are for a reliable group, and as long as the condition has not passed them."""
    subscribe = (
        "SELECT projections.subscribe_v1($1, 'e.seq_nr > 0', p_entity_types => '{none}', p_reliable => $2)"
    )
    await execute(journal, subscribe, "listening", False)
    await execute(journal, "SELECT projections._quarantine_condition_v1(1, 'why')")
    await execute(
        journal,
        "SELECT projections._keep_unasked_v1('{1}', "
        "ARRAY[('a', 5, $1::timestamptz, 97, 'Happened', $1::timestamptz, NULL, 'plane')"
        "::projections.events_to_match], ARRAY[(1, NULL, 1, '{}', 'plane')::projections.interests])",
        PAST + DAY,
    )
    assert await kept_by(journal) == dict.fromkeys(NAMES, ())

    await execute(journal, subscribe, "reliable", True)

    assert await kept_by(journal) == {
        NAMES[0]: (),
        NAMES[1]: ("events wait for condition 1 of subscriptions, stopped or catching up",),
        NAMES[2]: (),
    }
    await execute(journal, "UPDATE projections.conditions SET unasked_from = unasked_from + 1")
    assert await kept_by(journal) == dict.fromkeys(NAMES, ())


@pytest.mark.slow
async def test_match_that_a_group_has_not_read_keeps_its_event_and_itself(journal: Database) -> None:
    await execute(
        journal, "SELECT projections._create_partition_v1($1, $2, 'matches')", PAST + WEEK, PAST + 8 * DAY
    )
    await match(journal, await group(journal), PAST + DAY, PAST + WEEK)

    done = await retained(journal)

    assert [each.partition.name for each in done.dropped] == [NAMES[0], NAMES[2]]
    assert await kept_by(journal) == dict.fromkeys(
        [NAMES[1], "matches_20200108t000000"], ("group billing has 1 matches to read",)
    )

    await execute(journal, "UPDATE projections.group_ranges SET cursor = 1")
    done = await retained(journal)
    assert [each.partition.name for each in done.dropped] == [NAMES[1], "matches_20200108t000000"]
    assert await fetchval(journal, "SELECT dropped_until FROM projections.subscription_groups") == 1


@pytest.mark.slow
async def test_ranges_of_a_group_keep_what_each_has_not_read(journal: Database) -> None:
    number = await group(journal)
    await execute(journal, "SELECT projections._cut_group_v1('billing', '{0,512}')")
    await match(journal, number, PAST, PAST, match_id=1)  # in slice 7
    await match(journal, number, PAST + DAY, PAST + DAY, match_id=3)

    await execute(
        journal, "UPDATE projections.group_ranges SET cursor = CASE min_slice WHEN 0 THEN 1 ELSE 0 END"
    )
    assert [name for name, holders in (await kept_by(journal)).items() if holders] == [NAMES[1]]
    await execute(
        journal, "UPDATE projections.group_ranges SET cursor = CASE min_slice WHEN 0 THEN 3 ELSE 0 END"
    )
    assert await kept_by(journal) == dict.fromkeys(NAMES, ())


@pytest.mark.slow
async def test_group_that_only_listens_keeps_nothing(journal: Database) -> None:
    await match(journal, await group(journal, reliable=False), PAST + DAY, PAST + WEEK)

    assert await kept_by(journal) == dict.fromkeys(NAMES, ())


@pytest.mark.slow
async def test_subscription_keeps_events_that_nobody_has_begun_to_match(journal: Database) -> None:
    await fetchval(journal, "SELECT projections.subscribe_v1('billing')")
    await execute(journal, "UPDATE projections.subscriptions SET since = $1", PAST + DAY)

    waits = ("group billing waits for matching to begin",)
    assert await kept_by(journal) == {NAMES[0]: (), NAMES[1]: waits, NAMES[2]: waits}
    await reader(journal, PAST + WEEK, "matching")
    assert await kept_by(journal) == dict.fromkeys(NAMES, ())


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
async def test_function_refuses_a_partition_whose_retention_is_not_over(
    journal: Database, force: bool
) -> None:
    await keep(journal, "events", retention="forever")

    with pytest.raises(DatabaseError, match=f"{NAMES[0]} is kept: kept forever") as refused:
        await fetchval(journal, "SELECT projections._drop_partition_v1($1, $2)", NAMES[0], force)

    assert refused.value.sqlstate == "PJ071"


@pytest.mark.slow
async def test_function_refuses_a_partition_that_somebody_needs_and_names_them(journal: Database) -> None:
    await reader(journal, PAST + HOUR)

    with pytest.raises(DatabaseError, match=r"is kept: slow stands at 2020-01-01 01:00:00\+00") as refused:
        await fetchval(journal, "SELECT projections._drop_partition_v1($1)", NAMES[0])

    assert refused.value.sqlstate == "PJ071"
    assert await past(journal) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events_default", "sources", "nothing", "", "the one that runs"])
async def test_function_refuses_what_is_no_closed_partition(journal: Database, name: str) -> None:
    running = await fetchval(
        journal, "SELECT name FROM projections.partitions WHERE to_timestamp > clock_timestamp() LIMIT 1"
    )

    with pytest.raises(DatabaseError, match="is not a partition whose time is over") as refused:
        await fetchval(
            journal,
            "SELECT projections._drop_partition_v1($1, TRUE)",
            running if name == "the one that runs" else name,
        )

    assert refused.value.sqlstate == "PJ070"


@pytest.mark.slow
async def test_force_drops_what_is_unread_and_says_how_much_for_whom(journal: Database) -> None:
    number = await reader(journal, PAST + 2 * HOUR)
    await reader(journal, PAST + WEEK, "passed")
    await execute(
        journal, "UPDATE projections.projections SET evicted_before = $1 WHERE name = 'passed'", PAST + WEEK
    )
    await execute(
        journal,
        "INSERT INTO projections.source_offsets (projection_id, source_id, slice, seq_nr, db_timestamp) "
        "VALUES ($1, 'a', 97, 5, $2)",
        number,
        PAST + DAY,
    )

    done = await retained(journal, force=True)

    assert [(each.partition.name, each.problem) for each in done.dropped] == [(name, None) for name in NAMES]
    assert [each.unread for each in done.dropped] == [
        (UnreadRows("projection", "slow", 8),),
        (UnreadRows("projection", "slow", 11),),
        (UnreadRows("projection", "slow", 12),),
    ]
    assert await count(journal) == 0


@pytest.mark.slow
async def test_force_names_a_rebuild_among_those_who_lose(journal: Database) -> None:
    number = await reader(journal, PAST + WEEK, "rebuilt")
    await execute(
        journal,
        "UPDATE projections.projections SET evicted_before = $1 WHERE projection_id = $2",
        PAST + WEEK,
        number,
    )
    await execute(
        journal,
        "SELECT projections._begin_rebuild_v1("
        "$1, 0, 1023, 1, $2, 0, '', 'rename', '{0}', '{1023}', '{}', '{}', '{}', '{}', '{plane}')",
        number,
        PAST + 2 * DAY - HOUR,
    )

    done = await retained(journal, force=True)

    assert [each.unread for each in done.dropped] == [
        (UnreadRows("rebuild", "rebuilt", 12),),
        (UnreadRows("rebuild", "rebuilt", 12),),
        (),
    ]


@pytest.mark.slow
async def test_groups_learn_up_to_which_match_was_dropped(database: Database) -> None:
    behind, ahead = await group(database), await group(database, "ahead")
    await execute(database, "SELECT projections._create_partition_v1($1, $2, 'matches')", PAST, PAST + DAY)
    await match(database, behind, PAST, PAST + HOUR, match_id=41)
    await match(database, ahead, PAST, PAST + HOUR, match_id=42)
    await execute(
        database, "UPDATE projections.subscription_groups SET dropped_until = 77 WHERE name = 'ahead'"
    )

    done = await retained(database, force=True)

    assert [each.unread for each in done.dropped] == [
        (UnreadRows("group", "ahead", 1), UnreadRows("group", "billing", 1))
    ]
    groups = "SELECT json_object_agg(name, dropped_until)::text FROM projections.subscription_groups"
    assert json.loads(await fetchval(database, groups)) == {"billing": 42, "ahead": 77}


async def test_subscriptions_that_nobody_uses_expire(database: Database) -> None:
    await fetchval(database, "SELECT projections.subscribe_v1('billing', p_expires_after => '1 minute')")
    await fetchval(database, "SELECT projections.subscribe_v1('other')")
    await execute(
        database,
        "UPDATE projections.subscriptions SET active_at = active_at - $1::interval",
        timedelta(hours=1),
    )

    done = await retained(database)

    assert done.removed == {"message_ids": 0, "subscriptions": 1, "webhooks": 0}
    assert await count(database, "projections.subscriptions") == 1


@pytest.mark.slow
async def test_group_that_catches_up_keeps_what_it_has_still_to_look_at(journal: Database) -> None:
    await match_all(journal)
    async with journal.transaction() as session:
        await subscribe(session, "late", start=PAST + DAY + HOUR)

    done = await retained(journal)

    assert [each.partition.name for each in done.dropped] == NAMES[:1]
    assert [each.name for each in done.kept] == NAMES[1:]
    (reason,) = (await kept_by(journal))[NAMES[1]]
    assert "late" in reason
    assert reason.endswith("has 1 subscriptions that catch up with the past")

    while await fetchval(
        journal, "SELECT count(*) FROM projections.subscriptions WHERE starts_at IS NOT NULL"
    ):
        await match_all(journal)
    assert [reason for (reason,) in (await kept_by(journal)).values()] == [
        "group late has 21 matches to read"
    ] * 2
    async with journal.transaction() as session:
        assert await rewind_group(session, "late", "beginning") == 1
    reasons = await kept_by(journal)
    assert all(any("catch up with the past" in reason for reason in reasons[name]) for name in NAMES[1:])
