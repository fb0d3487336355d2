"""`projections webhooks deliveries`, `dead`, `attempts`, `events`, `stats` and `metrics` as a user runs them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from journal import Database, RawJson
from projections.webhooks.addresses import AddressRules
from projections.webhooks.deliverer import deliver
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import send
from projections.webhooks.receiver import Receiver
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.sender import HttpSender
from tests.fixtures.commands import NOBODY, called
from tests.fixtures.projections import caught_up, until
from tests.fixtures.webhook_delivery import delivering

LOCAL = AddressRules(allow=("127.0.0.0/8",))
ONCE = RetryPolicy(schedule=())
ALL_TRIED = "SELECT count(*) = $1 FROM projections.webhook_attempts"


class Sent(NamedTuple):
    """An endpoint of acme, with a message that arrived and then one that is dead."""

    dsn: str
    endpoint: str
    done: str
    dead: str


def values(*arguments: str) -> Any:
    result = called("webhooks", *arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def done(*arguments: str) -> str:
    result = called("webhooks", *arguments)
    assert result.returncode == 0, result.stderr
    assert NOBODY.fullmatch(result.stderr)
    return result.stdout


def refused(*arguments: str, code: int = 1) -> str:
    result = called("webhooks", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    return result.stderr


def rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line[:1] == "│"
    ]


def states(sent: Sent) -> dict[str, str]:
    return {one["event_id"]: one["state"] for one in values("deliveries", "--dsn", sent.dsn)["deliveries"]}


@pytest.fixture
async def sent(database: Database, dsn: str) -> Sent:
    service = Endpoints(database, rules=LOCAL, allow_http=True)
    async with Receiver(script=[204, 500]) as receiver:
        settings = EndpointSettings(url=receiver.url, policy=ONCE, ordering="endpoint")
        made = await service.create("acme", settings)
        events = [await _send(database, number) for number in (1, 2)]
        await caught_up(database, FanOut(), ranges=1)
        stop = asyncio.Event()
        async with HttpSender(LOCAL) as sender, asyncio.TaskGroup() as group:
            group.create_task(deliver(database, sender, stop=stop))
            await until(database, ALL_TRIED, 2)
            stop.set()
    return Sent(dsn, made.endpoint.endpoint_id, *events)


async def _send(database: Database, number: int) -> str:
    async with database.transaction() as session:
        sent = await send(
            session, "acme", "a.b", RawJson(f'{{"n":  {number}.0, "t": "[red]"}}'), metadata={"kind": "test"}
        )
    return str(sent.event_id)


# ---- deliveries ----


@pytest.mark.slow
def test_deliveries_are_listed_the_newest_first(sent: Sent) -> None:
    table = rows(done("deliveries", "--dsn", sent.dsn))

    assert [(row[0], row[2], *row[3:]) for row in table] == [
        (sent.dead, sent.endpoint[:11], "acme", "a.b", "dead", "1", "500", "-"),
        (sent.done, sent.endpoint[:11], "acme", "a.b", "done", "1", "204", "-"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--state", "dead"], 1),
        (["--state", "dead", "--state", "done"], 2),
        (["--tenant", "other"], 0),
        (["--topic", "a.b"], 2),
        (["--since", "1h"], 2),
        (["--until", "1h"], 0),
        (["--endpoint", "ep_"], 2),
        (["--endpoint", "unknown"], 0),
    ],
)
def test_deliveries_are_filtered(sent: Sent, options: list[str], count: int) -> None:
    assert len(values("deliveries", *options, "--dsn", sent.dsn)["deliveries"]) == count


@pytest.mark.slow
def test_deliveries_are_paged(sent: Sent) -> None:
    first = values("deliveries", "--limit", "1", "--dsn", sent.dsn)
    second = values("deliveries", "--limit", "1", "--next", first["next"], "--dsn", sent.dsn)

    assert [page["deliveries"][0]["event_id"] for page in (first, second)] == [sent.dead, sent.done]
    assert f"--next {first['next']}" in done("deliveries", "--limit", "1", "--dsn", sent.dsn)


@pytest.mark.slow
def test_a_delivery_is_shown_with_its_payload_as_written_and_its_attempts(sent: Sent) -> None:
    text = done("deliveries", "show", sent.endpoint, sent.dead, "--dsn", sent.dsn)
    one = values("deliveries", "show", sent.endpoint[:6], sent.dead, "--dsn", sent.dsn)

    assert 'payload    {"n":  2.0, "t": "[red]"}' in text
    assert rows(text)[0][2:4] + rows(text)[0][5:] == ["1", "500", "the receiver fails on request"]
    assert (one["state"], one["data"]) == ("dead", '{"n":  2.0, "t": "[red]"}')
    assert [(each["attempt_number"], each["code"]) for each in one["attempts_made"]] == [(1, "500")]


@pytest.mark.slow
def test_an_unknown_delivery_is_named(sent: Sent) -> None:
    for command in ("show", "retry", "drop"):
        assert "event 'x'" in refused("deliveries", command, sent.endpoint, "x", "--dsn", sent.dsn)


@pytest.mark.slow
def test_a_delivery_is_tried_again_whatever_became_of_it(sent: Sent) -> None:
    for event in (sent.done, sent.dead):
        assert values("deliveries", "retry", sent.endpoint, event, "--dsn", sent.dsn)["retried"] == 1

    assert states(sent) == {sent.done: "pending", sent.dead: "pending"}


@pytest.mark.slow
def test_to_a_disabled_endpoint_nothing_is_tried_again(sent: Sent) -> None:
    done("endpoints", "disable", sent.endpoint, "--dsn", sent.dsn)

    assert "is disabled" in refused("deliveries", "retry", sent.endpoint, sent.dead, "--dsn", sent.dsn)


@pytest.mark.slow
def test_dropping_asks_first(sent: Sent) -> None:
    assert "pass --yes" in refused("deliveries", "drop", sent.endpoint, sent.dead, "--dsn", sent.dsn)
    before = states(sent)[sent.dead]
    done("deliveries", "drop", sent.endpoint, sent.dead, "--yes", "--dsn", sent.dsn)

    assert (before, states(sent)[sent.dead]) == ("dead", "dropped")


@pytest.mark.slow
def test_dead_ones_are_dropped_by_filter(sent: Sent) -> None:
    command = ("deliveries", "drop", "--state", "dead", "--since", "1h", "--dsn", sent.dsn)

    assert "say which: pass --state" in refused(
        "deliveries", "drop", "--since", "1h", "--dsn", sent.dsn, code=2
    )
    assert "pass --yes" in refused(*command)
    assert values(*command, "--yes") == {"dropped": 1}
    assert states(sent) == {sent.done: "done", sent.dead: "dropped"}


def test_what_has_arrived_is_sent_again_by_filter(sent: Sent) -> None:
    command = ("deliveries", "retry", "--state", "done", "--since", "1h", "--dsn", sent.dsn)

    assert "pass --yes" in refused(*command)
    assert values(*command, "--yes")["retried"] == 1
    assert states(sent) == {sent.done: "pending", sent.dead: "dead"}


async def test_who_waits_for_a_retry_gets_its_outcome(database: Database, dsn: str) -> None:
    service = Endpoints(database, rules=LOCAL, allow_http=True)
    async with Receiver(script=[500, 204, 500]) as receiver, HttpSender(LOCAL) as sender:
        made = await service.create("acme", EndpointSettings(url=receiver.url, policy=ONCE))
        event = await _send(database, 1)
        await caught_up(database, FanOut(), ranges=1)
        line = ("webhooks", "dead", "retry", made.endpoint.endpoint_id, event, "--dsn", dsn)
        async with delivering(database, sender):
            await until(database, ALL_TRIED, 1)
            arrived = await asyncio.to_thread(called, *line, "--wait", "300s")
            again = ("webhooks", "deliveries", *line[2:])
            refused_again = await asyncio.to_thread(called, *again, "--wait", "300s", "--json")
    alone = await asyncio.to_thread(called, *line, "--wait", "1ms", "--json")

    assert (arrived.returncode, arrived.stdout) == (0, "delivery done (204)\n")
    assert refused_again.returncode == 1
    assert json.loads(refused_again.stdout).items() >= {"retried": 1, "state": "dead", "code": "500"}.items()
    assert (alone.returncode, json.loads(alone.stdout)["state"]) == (1, "pending")


# ---- dead ----


@pytest.mark.slow
def test_dead_letters_alone_are_listed(sent: Sent) -> None:
    assert [row[0] for row in rows(done("dead", "--dsn", sent.dsn))] == [sent.dead]
    assert [one["event_id"] for one in values("dead", "--dsn", sent.dsn)["dead"]] == [sent.dead]


@pytest.mark.slow
def test_dead_letters_are_tried_again_by_filter(sent: Sent) -> None:
    missed = values("dead", "retry", "--tenant", "other", "--dsn", sent.dsn)
    text = done("dead", "retry", "--endpoint", sent.endpoint[:6], "--since", "1h", "--dsn", sent.dsn)

    assert missed["retried"] == 0
    assert text == "deliveries to be retried: 1\n"
    assert states(sent)[sent.dead] == "pending"


@pytest.mark.slow
def test_deciding_about_dead_letters_needs_a_filter_or_all(sent: Sent) -> None:
    for command in ("retry", "drop"):
        for options in ([], ["--all", "--tenant", "acme"], ["ep", "e", "--all"], ["ep"]):
            assert "say which" in refused("dead", command, *options, "--dsn", sent.dsn, code=2)


def test_dead_letters_are_dropped_once_somebody_has_said_yes(sent: Sent) -> None:
    assert "pass --yes" in refused("dead", "drop", "--all", "--dsn", sent.dsn)
    assert values("dead", "drop", "--all", "--yes", "--dsn", sent.dsn) == {"dropped": 1}
    assert states(sent) == {sent.done: "done", sent.dead: "dropped"}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "state"), [(["retry"], "pending"), (["drop", "--yes"], "dropped")])
def test_one_dead_letter_is_decided_about_and_nothing_that_is_not_dead(
    sent: Sent, command: list[str], state: str
) -> None:
    text = done("dead", "show", sent.endpoint[:6], sent.dead, "--dsn", sent.dsn)
    refusal = refused("dead", *command, sent.endpoint, sent.done, "--dsn", sent.dsn)
    done("dead", *command, sent.endpoint, sent.dead, "--dsn", sent.dsn)

    assert '{"n":  2.0, "t": "[red]"}' in text
    assert "is done, not dead" in refusal
    assert states(sent) == {sent.done: "done", sent.dead: state}


# ---- the log ----


@pytest.mark.slow
def test_attempts_are_paged_by_cursors_both_ways(sent: Sent) -> None:
    def page(*options: str) -> tuple[list[str], Any]:
        found = values("attempts", "--limit", "1", *options, "--dsn", sent.dsn)
        return [one["event_id"] for one in found["attempts"]], found

    first, one = page()
    second, two = page("--next", one["next"])
    back, _ = page("--prev", two["prev"])

    assert (first, second, back) == ([sent.dead], [sent.done], [sent.dead])
    shown = done("attempts", "--limit", "1", "--dsn", sent.dsn).split("--next ")[1].split()[0]
    assert page("--next", shown)[0] == [
        sent.done
    ]  # a cursor names a state of the database, too: no two are the same


@pytest.mark.slow
def test_what_a_page_says_at_its_end_leads_on_also_from_how_long_ago(sent: Sent) -> None:
    end = done("attempts", "--limit", "1", "--since", "2h", "--dsn", sent.dsn).splitlines()[-1]

    assert rows(done("attempts", *end.split(), "--dsn", sent.dsn))[0][1] == sent.done


@pytest.mark.slow
def test_attempts_are_filtered_and_ordered(sent: Sent) -> None:
    failed = rows(done("attempts", "--status", "failed", "--dsn", sent.dsn))
    oldest = values("attempts", "--oldest-first", "--endpoint", "ep_", "--dsn", sent.dsn)["attempts"]

    assert [(row[1], row[5], row[-1]) for row in failed] == [
        (sent.dead, "500", "the receiver fails on request")
    ]
    assert [one["event_id"] for one in oldest] == [sent.done, sent.dead]
    assert done("attempts", "--tenant", "other", "--dsn", sent.dsn) == "no attempt matches\n"


@pytest.mark.slow
def test_an_attempt_is_shown_whole(sent: Sent) -> None:
    (one,) = values("attempts", "--status", "failed", "--dsn", sent.dsn)["attempts"]
    text = done("attempts", "show", one["attempt_id"], "--dsn", sent.dsn)

    assert "failed, 500" in text
    assert '{"n":  2.0, "t": "[red]"}' in text
    assert "no attempt 'x'" in refused("attempts", "show", "x", "--dsn", sent.dsn)


def test_a_bad_cursor_is_refused(sent: Sent) -> None:
    assert "'!!!'" in refused("attempts", "--next", "!!!", "--dsn", sent.dsn, code=2)


@pytest.mark.slow
def test_events_are_listed_and_shown_with_their_labels(sent: Sent) -> None:
    table = rows(done("events", "--dsn", sent.dsn))
    text = done("events", "show", sent.done, "--dsn", sent.dsn)

    assert [(row[1], row[4], row[5]) for row in table] == [
        (sent.dead, "1", '{"n": 2.0, "t": "[red]"}'),
        (sent.done, "1", '{"n": 1.0, "t": "[red]"}'),
    ]
    assert '{"kind": "test"}' in text
    assert sent.endpoint in text
    assert "no event 'x'" in refused("events", "show", "x", "--dsn", sent.dsn)


# ---- figures ----


@pytest.mark.slow
def test_stats_tell_how_an_endpoint_fares(sent: Sent) -> None:
    (one,) = values("stats", "--dsn", sent.dsn)["endpoints"]
    (row,) = rows(done("stats", "--tenant", "acme", "--dsn", sent.dsn))

    assert one.items() >= {
        "endpoint_id": sent.endpoint, "state": "active", "dead": 1, "pending": 0, "succeeded": 1, "failed": 1,
        "success_rate": 0.5, "failures": 1, "held": False,
    }.items()  # fmt: skip
    assert one["failing_since"] is not None
    assert (row[0], row[3], row[6], row[7]) == (sent.endpoint[:11], "failing", "1", "0")
    assert (row[8], row[9]) == ("2", "50.0%")
    assert row[-1].endswith(", 1 attempt")


def test_stats_tell_why_an_endpoint_is_not_active(sent: Sent) -> None:
    done("endpoints", "pause", sent.endpoint, "--reason", "moving", "--dsn", sent.dsn)

    assert rows(done("stats", "--dsn", sent.dsn))[0][3] == "paused: moving"


@pytest.mark.slow
def test_attempts_are_counted_by_endpoint_and_code(sent: Sent) -> None:
    table = rows(done("metrics", "--by", "endpoint", "--by", "code", "--dsn", sent.dsn))
    found = values("metrics", "--by", "code", "--measure", "count", "--dsn", sent.dsn)["data"]

    assert [row[:6] for row in table] == [
        [sent.endpoint[:11], "204", "1", "1", "0", "0.0%"],
        [sent.endpoint[:11], "500", "1", "0", "1", "100.0%"],
    ]
    assert [(one["dimensions"], one["count"]) for one in found] == [
        ({"code": "204"}, 1),
        ({"code": "500"}, 1),
    ]


@pytest.mark.parametrize("span", ["90s", "1h30m", "1x"])
def test_a_span_is_one_of_the_calendar(span: str) -> None:
    result = called("webhooks", "metrics", "--every", span)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"'{span}' is not one span of the calendar: write 1s to 60s" in result.stderr


@pytest.mark.slow
def test_every_span_of_time_has_a_line(sent: Sent) -> None:
    now = datetime.now(UTC)
    span = ("--since", (now - timedelta(hours=3)).isoformat(), "--until", now.isoformat())
    found = values("metrics", "--events", "--every", "1h", *span, "--dsn", sent.dsn)["data"]

    assert len(found) == 4
    assert sum(one["count"] for one in found) == 2


def test_a_measure_of_attempts_is_none_of_events(sent: Sent) -> None:
    assert "error_rate" in refused(
        "metrics", "--events", "--measure", "error_rate", "--dsn", sent.dsn, code=2
    )
