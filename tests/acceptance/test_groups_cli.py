"""`projections groups`, `subscriptions`, `subscribe` and `publish` as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from journal import Database
from projections.subscriptions import create_group, subscribe
from projections.subscriptions.groups import poll_group
from tests.fixtures.commands import COMMAND, NOBODY, called, environment, projections, query
from tests.fixtures.projections import execute
from tests.fixtures.subscriptions import landed, landed_and_matched

LOW, HIGH = "a", "yz"  # slices 97 and 801
KEPT = {
    "subscription_ids": [1], "source_id": "N1", "seq_nr": 1, "db_timestamp": "2030-01-01T00:00:00+00:00", "slice": 5,
    "event_id": "01890a5d-ac96-774b-bcce-b302099a8057", "entity_type": "plane", "event_type": "Landed", "version": 1,
    "payload_json": '{"delay": 1}', "metadata_json": None, "tags": None,
}  # fmt: skip
FAIL = "SELECT projections.fail_batch_v1($1, 'invoice', 3, $2, $3::text::interval, $4)"
QUARANTINE = "SELECT projections._quarantine_condition_v1(condition_id, 'division by zero') FROM projections.conditions"


@pytest.fixture
async def group(database: Database, dsn: str) -> str:
    """Group billing in two ranges: two matches wait in the lower, one in the higher."""
    async with database.transaction() as session:
        await create_group(session, "billing", ranges=2)
        await subscribe(session, "billing", topics=["Landed"])
    await landed_and_matched(database, LOW, LOW, HIGH)
    return dsn


@pytest.fixture
async def dead(database: Database, group: str) -> str:
    """Two dead letters of billing, and a batch that is to be handled again."""
    for number, (error, delay) in enumerate(
        [("no customer\nline 2", None), ("[red]x", None), ("late", "1 h")], 1
    ):
        await execute(database, FAIL, "billing", error, delay, json.dumps([{**KEPT, "match_id": number}]))
    return group


def values(*arguments: str) -> Any:
    result = called(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line[:1] == "│"
    ]


def done(*arguments: str) -> str:
    result = called(*arguments)
    assert result.returncode == 0, result.stderr
    assert NOBODY.fullmatch(result.stderr)
    return result.stdout


def refused(*arguments: str, code: int = 1) -> str:
    result = called(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    return result.stderr


# ---- groups ----


def test_without_groups_it_says_how_to_make_one(dsn: str) -> None:
    for command in ("groups", "subscriptions"):
        assert "`projections subscribe GROUP` makes one" in done(command, "--dsn", dsn)


def test_lag_and_backlog_of_each_group(group: str) -> None:
    (row,) = rows(done("groups", "--dsn", group))
    (found,) = values("groups", "show", "billing", "--dsn", group)["groups"]

    assert (row[:4], row[5:]) == (["billing", "unread", "2", "0"], ["3", "0", "0", "0"])
    assert (found["name"], found["backlog"], found["state"], found["head"]) == ("billing", 3, "unread", 3)
    assert found["lag_seconds"] == max(part["lag_seconds"] for part in found["ranges"]) > 0


async def test_lag_and_backlog_of_each_range_and_who_reads_it(database: Database, group: str) -> None:
    async with database.session() as session:
        await poll_group(session, "billing", "[me]", timedelta(hours=1))
    table = rows(done("groups", "show", "billing", "--ranges", "--dsn", group))
    (found,) = values("groups", "--dsn", group)["groups"]

    assert [row[:4] + row[5:8] for row in table] == [
        ["billing", "0-511", "[me]", "read", "2", "0", "0"],
        ["billing", "512-1023", "[me]", "read", "1", "0", "0"],
    ]
    assert [part["backlog"] for part in found["ranges"]] == [2, 1]
    assert found["readers"] == ["[me]"]


async def test_fail_above_tells_that_nobody_matches(database: Database, group: str) -> None:
    await execute(database, "UPDATE projections.group_ranges SET cursor = 3")
    caught_up = called("groups", "--fail-above", "0ms", "--dsn", group)
    await landed(database, LOW)

    behind = called("groups", "--fail-above", "0ms", "--dsn", group)

    assert (caught_up.returncode, behind.returncode) == (0, 3)
    assert "lag above 0 s: billing" in behind.stderr


@pytest.mark.parametrize(("limit", "code"), [("2h", 0), ("0ms", 3)])
def test_fail_above_tells_by_the_exit_code_whether_a_group_lags(group: str, limit: str, code: int) -> None:
    result = called("groups", "--fail-above", limit, "--dsn", group)

    assert result.returncode == code
    assert ("billing (" in result.stderr) == (code == 3)


EVENTS = """
from pydantic import BaseModel
from journal import event_type

@event_type("scales.weighed", version=2, upcast={1: lambda old: {"g": old["kg"] * 1000}})
class Weighed(BaseModel):
    g: int
"""


@pytest.mark.slow
def test_a_worker_matches_the_newest_version_of_the_event_types_in_a_module(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "my_events.py").write_text(EVENTS)
    done("subscribe", "g", "--contains", '{"g": 2000}', "--dsn", dsn)
    query(dsn, "SELECT projections.append_event_v1('a', 'scales', 'scales.weighed', '{\"kg\": 2}')")

    refusal = projections("worker", "my_events", "--until-caught-up", "--dsn", dsn, cwd=tmp_path)
    worker = projections(
        "worker", "my_events", "--subscriptions", "--until-caught-up", "--dsn", dsn, cwd=tmp_path
    )

    assert "module 'my_events' holds no projection" in refusal.stderr
    assert worker.returncode == 0, worker.stderr
    assert query(dsn, "SELECT count(*) FROM projections.matches") == [(1,)]


@pytest.mark.slow
def test_events_that_nobody_matches_are_pointed_at(dsn: str) -> None:
    done("subscribe", "g", "--dsn", dsn)
    done("publish", "t", "--dsn", dsn)
    before, listed = done("groups", "--dsn", dsn), values("groups", "--dsn", dsn)["unmatched"]
    assert projections("worker", "--subscriptions", "--until-caught-up", "--dsn", dsn).returncode == 0
    after = done("groups", "--dsn", dsn)

    assert (
        "nobody has matched events of type 'published' yet: start `projections worker --subscriptions`"
        in before
    )
    assert listed == ["published"]
    assert "nobody has matched" not in after
    assert rows(after)[0][5] == "1"


def test_watching_does_not_fail_above_for_groups() -> None:
    assert "without --fail-above" in refused("groups", "--watch", "--fail-above", "1s", code=2)


@pytest.mark.slow
def test_watching_groups_in_a_pipe_prints_one_look_after_another(group: str) -> None:
    command = [*COMMAND, "groups", "--watch", "--json", "--dsn", group]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline())["groups"][0]["backlog"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)

    assert looks == [3, 3]
    assert (process.returncode, errors) == (130, "")


def test_a_group_that_there_is_not_is_told_with_those_that_there_are(group: str) -> None:
    assert refused("groups", "show", "nobody", "--dsn", group) == (
        "error: there is no group 'nobody': subscribe for it, or create it first; those that there are: 'billing'\n"
    )


def test_a_group_is_never_mistaken_for_a_command(group: str) -> None:
    error = refused("groups", "billing", "--dsn", group, code=2)

    assert "No such command 'billing'. To show one: projections groups show billing" in error


async def test_a_group_may_be_called_as_a_command_is(database: Database, dsn: str) -> None:
    async with database.transaction() as session:
        await create_group(session, "rescale")

    (row,) = rows(done("groups", "show", "rescale", "--dsn", dsn))

    assert row[0] == "rescale"


def test_a_group_is_cut_into_another_number_of_ranges(group: str) -> None:
    before = done("groups", "rescale", "billing", "--ranges", "4", "--dsn", group)
    again = done("groups", "rescale", "billing", "--ranges", "4", "--dsn", group)

    assert before == "group 'billing' had 2 ranges, and has 4 now\n"
    assert again == "group 'billing' has 4 ranges already\n"
    assert query(group, "SELECT count(*) FROM projections.group_ranges") == [(4,)]


def test_cutting_a_group_that_there_is_not_is_refused(dsn: str) -> None:
    assert "there is no group 'x'" in refused("groups", "rescale", "x", "--ranges", "4", "--dsn", dsn)


def test_a_group_is_removed_with_all_that_is_its_own_only_when_somebody_agrees(dead: str) -> None:
    error = refused("groups", "remove", "billing", "--dsn", dead)
    kept = query(dead, "SELECT count(*) FROM projections.subscription_groups")
    done("groups", "remove", "billing", "--yes", "--dsn", dead)

    assert "pass --yes" in error
    assert kept == [(1,)]
    for table in ("subscription_groups", "subscriptions", "group_ranges", "group_retries"):
        assert query(dead, f"SELECT count(*) FROM projections.{table}") == [(0,)]


# ---- dead letters ----


def test_dead_letters_are_listed_and_pointed_at(dead: str) -> None:
    table = rows(done("groups", "dead", "list", "billing", "--dsn", dead))

    assert [(row[0], row[2], row[3], row[4], row[6]) for row in table] == [
        ("billing", "invoice", "1", "3", "no customer"),
        ("billing", "invoice", "1", "3", "[red]x"),
    ]
    assert "2 batches wait for a decision: projections groups dead list billing" in done(
        "groups", "--dsn", dead
    )


def test_a_dead_letter_is_shown_whole(dead: str) -> None:
    text = done("groups", "dead", "show", "billing", "1", "--dsn", dead)
    found = values("groups", "dead", "show", "billing", "1", "--dsn", dead)

    assert "  no customer\n  line 2\n" in text
    assert rows(text) == [["1", "N1", "1", "Landed", '{"delay": 1}']]
    assert (found["error"], found["events"][0]["payload"]) == ("no customer\nline 2", '{"delay": 1}')


async def test_a_payload_that_is_nested_deeper_than_python_reads_is_shown(
    database: Database, group: str
) -> None:
    deep = "[" * 2000 + "1e400" + "]" * 2000
    batch = json.dumps([{**KEPT, "match_id": 1, "payload_json": deep}])
    await execute(database, FAIL, "billing", "no customer", None, batch)

    found = values("groups", "dead", "show", "billing", "1", "--dsn", group)

    assert found["events"][0]["payload"] == deep
    assert "[[[" in done("groups", "dead", "show", "billing", "1", "--dsn", group)


def test_a_dead_letter_is_handled_again_when_it_is_retried(dead: str) -> None:
    retried = called("groups", "dead", "retry", "billing", "1", "--dsn", dead)
    assert (retried.returncode, retried.stdout) == (0, "dead letters to be retried: 1\n")
    assert retried.stderr == "no consumer of group 'billing' runs: it is done when one does\n"

    assert query(
        dead, "SELECT retry_id FROM projections.group_retries WHERE due_at <= clock_timestamp()"
    ) == [(1,)]
    assert "batch 1 is not a dead letter of group 'billing'" in refused(
        "groups", "dead", "retry", "billing", "1", "--dsn", dead
    )


def test_all_dead_letters_are_retried_and_what_waits_is_left_alone(dead: str) -> None:
    retried = called("groups", "dead", "retry", "billing", "--all", "--dsn", dead)
    assert (retried.returncode, retried.stdout) == (0, "dead letters to be retried: 2\n")

    assert query(dead, "SELECT count(*) FROM projections.group_retries WHERE due_at > clock_timestamp()") == [
        (1,)
    ]
    assert done("groups", "dead", "list", "--dsn", dead) == "there are no dead letters\n"


@pytest.mark.parametrize("arguments", [[], ["1", "--all"]])
def test_retrying_needs_to_know_what(arguments: list[str]) -> None:
    assert "pass either ID or --all" in refused("groups", "dead", "retry", "billing", *arguments, code=2)


def test_a_dead_letter_is_dropped_only_when_somebody_agrees(dead: str) -> None:
    error = refused("groups", "dead", "drop", "billing", "1", "--dsn", dead)
    kept = query(dead, "SELECT count(*) FROM projections.group_retries")

    assert "pass --yes" in error
    assert kept == [(3,)]
    assert (
        done("groups", "dead", "drop", "billing", "1", "--yes", "--dsn", dead) == "dead letters dropped: 1\n"
    )
    assert query(dead, "SELECT count(*) FROM projections.group_retries") == [(2,)]


def test_a_batch_that_is_to_be_handled_again_is_not_dropped(dead: str) -> None:
    assert "batch 3 is not a dead letter" in refused(
        "groups", "dead", "drop", "billing", "3", "--yes", "--dsn", dead
    )


async def test_a_dead_letter_of_another_group_is_not_decided_about(database: Database, dead: str) -> None:
    async with database.transaction() as session:
        await create_group(session, "other")

    assert "not a dead letter of group 'other'" in refused(
        "groups", "dead", "retry", "other", "1", "--dsn", dead
    )
    assert "there is no group 'x'" in refused("groups", "dead", "retry", "x", "--all", "--dsn", dead)


# ---- subscriptions ----


def test_a_group_is_subscribed_and_the_subscription_shown(dsn: str) -> None:
    said = done(
        "subscribe", "billing", "--topic", "order.*", "--topic", "50%_off", "--entity-type", "order",
        "--contains", '{"currency": "EUR"}', "--condition", "e.seq_nr > (s.params ->> 'least')::int",
        "--params", '{"least": 3}', "--expires-after", "15m", "--dsn", dsn,
    )  # fmt: skip

    (found,) = values("subscriptions", "--dsn", dsn)["subscriptions"]
    assert said == "subscription 1 of group 'billing'\n"
    assert (found["group"], found["topics"], found["entity_types"]) == (
        "billing",
        ["50%_off", "order.*"],
        ["order"],
    )
    assert found["params"] == {"least": 3, "contains": {"currency": "EUR"}}
    assert (found["expires_after_seconds"], found["state"]) == (900, "active")


def test_subscribing_again_is_the_same_subscription(dsn: str) -> None:
    found = [values("subscribe", "g", "--topic", "a", "--dsn", dsn)["subscription_id"] for _ in range(2)]

    assert found[0] == found[1]


def test_a_group_that_only_listens_is_made(dsn: str) -> None:
    done("subscribe", "g", "--listen-only", "--dsn", dsn)

    assert rows(done("groups", "--dsn", dsn))[0][:2] == ["g", "listening"]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--condition", "1 +"], 2, "not a condition over e and s: it ends too early"),
        (["--condition", "nonsense ("], 2, "it ends too early, as where a parenthesis is open"),
        (["--condition", "e.seq_nr"], 2, "must be type boolean, not type bigint"),
        (["--params", "{"], 2, "is not JSON"),
        (["--contains", "[1]"], 2, "is not a JSON object"),
        (["--topic", ""], 2, "must be a string that is not empty"),
        (["--entity-type", "k,r"], 2, "entity_types has 'k,r': write 'k', 'r', each by itself"),
        (["--entity-type", "k", "--entity-type", "k"], 2, "entity_types names 'k' twice"),
        (
            ["--listen-only", "--from", "beginning"],
            2,
            "group 'g' only listens: it gets what comes, and nothing",
        ),
        (["--expires-after", "soon"], 2, "'soon' is not a duration"),
        (["--expires-after", "0s"], 2, "expires_after must be longer than 0"),
    ],
)
def test_a_subscription_that_can_not_be_is_told(
    dsn: str, arguments: list[str], code: int, error: str
) -> None:
    assert error in refused("subscribe", "g", *arguments, "--dsn", dsn, code=code)
    assert query(dsn, "SELECT count(*) FROM projections.subscription_groups") == [(0,)]


def test_long_conditions_are_cut_in_tables_and_whole_in_json(dsn: str) -> None:
    condition = " AND ".join(f"e.seq_nr <> {number}" for number in range(20))
    done("subscribe", "g", "--condition", condition, "--dsn", dsn)

    (row,) = rows(done("subscriptions", "list", "g", "--dsn", dsn))

    assert len(row[4]) == 60
    assert row[4].endswith("…")
    assert values("subscriptions", "list", "g", "--dsn", dsn)["subscriptions"][0]["condition"] == condition
    assert condition in done("subscriptions", "show", "1", "--dsn", dsn)
    assert values("subscriptions", "show", "1", "--dsn", dsn)["condition"] == condition


def test_a_subscription_that_is_not_there_is_told(dsn: str) -> None:
    assert "there is no subscription 7" in refused("subscriptions", "show", "7", "--dsn", dsn)


async def test_a_condition_that_was_set_apart_is_shown_and_released(database: Database, dsn: str) -> None:
    done("subscribe", "g", "--condition", "1 / (e.seq_nr - 1) > 0", "--dsn", dsn)
    await execute(database, QUARANTINE)
    shown = done("subscriptions", "--dsn", dsn)

    released = done("subscriptions", "release", "1", "--dsn", dsn)

    assert rows(shown)[0][-1] == "quarantined"
    assert "is stopped: division by zero; have it asked again: projections subscriptions release 1" in shown
    assert released == "condition 1 is asked again\n"
    assert rows(done("subscriptions", "--dsn", dsn))[0][-1] == "active"
    assert "condition 1 is not stopped" in refused("subscriptions", "release", "1", "--dsn", dsn)


@pytest.mark.slow
async def test_an_event_that_a_condition_failed_on_is_shown_tried_again_and_dropped(
    database: Database, dsn: str
) -> None:
    done("subscribe", "g", "--condition", "(e.payload::text)::date < now()", "--dsn", dsn)
    assert done("subscriptions", "waiting", "--dsn", dsn) == "no event waits for a condition\n"
    await landed_and_matched(database, LOW, HIGH)

    (row, _) = rows(done("subscriptions", "waiting", "list", "1", "--dsn", dsn))
    assert row[:5] == ["1", "1", LOW, "1", "Landed"]
    assert row[6] == "failed"
    assert row[7].startswith("invalid input syntax for type date")
    shown = values("subscriptions", "waiting", "show", "2", "--dsn", dsn)
    assert (shown["source_id"], shown["due"]) == (HIGH, False)
    assert shown["payload"] == "{}"
    assert "condition 1: (e.payload::text)::date" in done(
        "subscriptions", "waiting", "show", "2", "--dsn", dsn
    )
    assert (
        called("subscriptions", "waiting", "retry", "1", "--dsn", dsn).stdout == "events to be retried: 1\n"
    )
    assert [one["due"] for one in values("subscriptions", "waiting", "--dsn", dsn)["waiting"]] == [
        True,
        False,
    ]
    assert values("subscriptions", "waiting", "retry", "--all", "--dsn", dsn) == {
        "retried": 1,
        "running": False,
    }
    assert values("subscriptions", "waiting", "drop", "2", "--yes", "--dsn", dsn) == {"dropped": 1}
    assert values("subscriptions", "waiting", "drop", "--all", "--yes", "--dsn", dsn) == {"dropped": 1}
    assert "no event 2 waits" in refused("subscriptions", "waiting", "drop", "2", "--yes", "--dsn", dsn)
    assert "there is no condition 99" in refused("subscriptions", "waiting", "list", "99", "--dsn", dsn)
    assert "no event 2 waits" in refused("subscriptions", "waiting", "retry", "2", "--dsn", dsn)


async def test_a_stopped_condition_is_shown_with_the_time_from_which_on_its_events_wait(
    database: Database, dsn: str
) -> None:
    done("subscribe", "g", "--condition", "e.seq_nr > 0", "--dsn", dsn)
    await execute(database, QUARANTINE)
    assert "condition 1 (e.seq_nr > 0) is stopped, and its events wait, none has come yet" in done(
        "subscriptions", "waiting", "--dsn", dsn
    )

    await landed_and_matched(database, LOW, HIGH)

    told = done("subscriptions", "waiting", "--dsn", dsn)
    assert "condition 1 (e.seq_nr > 0) is stopped, and its events wait, from 2" in told
    assert "projections subscriptions release 1" in told
    (one,) = values("subscriptions", "waiting", "--dsn", dsn)["behind"]
    assert (one["condition_id"], one["stopped"]) == (1, True)
    done("subscriptions", "release", "1", "--dsn", dsn)
    assert "is catching up with its events" in done("subscriptions", "waiting", "list", "1", "--dsn", dsn)


async def test_a_subscription_that_nobody_has_kept_is_shown_as_expired(database: Database, dsn: str) -> None:
    done("subscribe", "g", "--expires-after", "15m", "--dsn", dsn)
    await execute(
        database, "UPDATE projections.subscriptions SET active_at = active_at - interval '16 minutes'"
    )

    assert rows(done("subscriptions", "--dsn", dsn))[0][-1] == "expired"


def test_a_subscription_is_removed_only_when_somebody_agrees(group: str) -> None:
    assert "pass --yes" in refused("subscriptions", "remove", "1", "--dsn", group)
    assert done("subscriptions", "remove", "1", "--yes", "--dsn", group) == (
        "subscription 1 of group 'billing' is removed\n"
    )
    assert "there is no subscription 1" in refused("subscriptions", "remove", "1", "--yes", "--dsn", group)


def test_subscriptions_of_a_group_that_there_is_not_are_refused(dsn: str) -> None:
    assert "there is no group 'x'" in refused("subscriptions", "list", "x", "--dsn", dsn)


# ---- publish ----


def test_a_payload_is_published_as_it_was_written(dsn: str) -> None:
    found = values("publish", "order.paid", '{"b": 1,  "a": 1.50}', "--publisher", "shop", "--dsn", dsn)

    assert (found["source_id"], found["seq_nr"]) == ("publisher/shop", 1)
    assert query(dsn, "SELECT event_type, payload::text FROM projections.events") == [
        ("order.paid", '{"b": 1,  "a": 1.50}')
    ]


@pytest.mark.slow
def test_a_payload_is_read_from_the_standard_input(dsn: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "publish", "t", "-", "--dsn", dsn], stdin=subprocess.PIPE, env=environment()
    ) as process:
        process.communicate('{"ä": 1}\n'.encode(), timeout=300)

    assert process.returncode == 0
    assert query(dsn, "SELECT payload::text FROM projections.events") == [('{"ä": 1}',)]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["a..b"], 2, "the topic 'a..b' has an empty segment"),
        (["t", "{"], 2, "'{' is not JSON"),
        (["", "{}"], 2, "topic must have 1 to 255 characters"),
        (["t", "--to", "9"], 2, "there is no subscription 9"),
        (["t", "--not-before", "soon"], 2, "'soon' is not a time"),
    ],
)
def test_what_can_not_be_published_is_told(dsn: str, arguments: list[str], code: int, error: str) -> None:
    assert error in refused("publish", *arguments, "--dsn", dsn, code=code)
