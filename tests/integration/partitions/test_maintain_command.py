"""``projections maintain`` and ``projections partitions`` from the command line."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from journal import Database, connect
from projections.cli import main
from tests.fixtures.commands import COMMAND, environment
from tests.fixtures.projections import execute, until
from tests.fixtures.retention import DAY, HOUR, NAMES, PAST, filled, keep, past, reader

TABLES = {"events", "matches", "webhook_events", "webhook_attempts"}


def _run(*arguments: str, command: str = "maintain") -> tuple[int, str]:
    result = CliRunner().invoke(main, [command, *arguments])
    return result.exit_code, result.output


@pytest.mark.slow
def test_json_lists_what_was_made_and_a_second_run_makes_nothing(dsn: str) -> None:
    code, output = _run("--dsn", dsn, "--interval", "12h", "--ahead", "2", "--json")
    again = _run("--dsn", dsn, "--interval", "12h", "--ahead", "2", "--json")

    made = json.loads(output)["partitions"]
    events = [p for p in made if p["table"] == "events"]
    assert code == 0
    assert [(p["moved"], p["problem"]) for p in events] == [(0, None)] * 3
    assert [p["from"] for p in events[1:]] == [p["to"] for p in events[:-1]]
    assert [p["table"] for p in made if p not in events] == [
        table for table in ("matches", "webhook_attempts", "webhook_events") for _ in range(8)
    ]
    removed = '{"message_ids": 0, "subscriptions": 0, "webhooks": 0}'
    assert again == (0, f'{{"partitions": [], "dropped": [], "kept": [], "removed": {removed}}}\n')


def test_lines_say_what_was_made(dsn: str) -> None:
    code, output = _run("--dsn", dsn, "--ahead", "1")

    assert code == 0
    assert all(line.endswith(" UTC: 0 rows moved") for line in output.splitlines())
    assert {line.split(":")[0] for line in output.splitlines()} == TABLES
    assert _run("--dsn", dsn, "--ahead", "1") == (0, "nothing to do\n")


@pytest.mark.parametrize("interval", ["1", "1w", "-1d", "1 h", ""])
def test_interval_that_is_no_length_of_time_is_refused(interval: str) -> None:
    code, output = _run("--interval", interval)

    assert code == 2
    assert "is not a duration: write 500ms, 30s, 5m, 1h30m or 1d" in output


@pytest.mark.parametrize("interval", ["0d", "1s", "500ms", "400d"])
def test_interval_that_no_partition_can_have_is_refused(dsn: str, interval: str) -> None:
    code, output = _run("--dsn", dsn, "--interval", interval)

    assert code == 2
    assert "error: interval is whole seconds from 1 minute to 366 days, not " in output


def test_maintaining_again_and_again_needs_a_pause() -> None:
    assert _run("--every", "0s")[0] == 2


def test_database_without_the_schema_says_what_to_do(empty_dsn: str) -> None:
    code, output = _run("--dsn", empty_dsn)

    assert code == 1
    assert "projections schema install" in output


@pytest.mark.slow
def test_what_is_dropped_and_what_is_kept_is_told(dsn: str) -> None:
    _filled(dsn, horizon=True)

    code, output = _run("--dsn", dsn)

    lines = [line for line in output.splitlines() if "2020" in line]
    assert code == 0
    assert lines[0].startswith(f"dropped: {NAMES[0]}, 2020-01-01 00:00 to 2020-01-02 00:00 UTC, 0.")
    stands = "projection slow stands at 2020-01-02 01:00:00+00"
    assert lines[1:] == [
        f"kept: {NAMES[1]}, 2020-01-02 00:00 to 2020-01-03 00:00 UTC: {stands}",
        f"kept: {NAMES[2]}, 2020-01-03 00:00 to 2020-01-04 00:00 UTC: {stands}",
    ]


@pytest.mark.slow
def test_force_tells_who_has_lost_what(dsn: str) -> None:
    _filled(dsn, horizon=True)

    lines = _run("--dsn", dsn, "--force")[1].splitlines()
    dropped = [line for line in lines if line.startswith(("dropped", "  "))]

    assert [line.split(",")[0] for line in dropped[1::2]] == ["  unread by projection slow: 12 rows"] * 3
    assert [line.split(",")[0] for line in dropped[::2]] == [f"dropped: {name}" for name in NAMES]


@pytest.mark.slow
def test_partition_that_can_not_be_dropped_is_told_and_the_exit_code_is_1(dsn: str, tmp_path: Path) -> None:
    _filled(dsn)

    code, output = _run("--dsn", dsn, "--archive", "os:abort_mission")
    assert (code, "'os:abort_mission' cannot be imported" in output) == (2, True)

    code, output = _run("--dsn", dsn, "--archive", "os:fspath")
    assert code == 1
    assert f"not dropped: {NAMES[0]}" in output
    assert "not archived: TypeError: expected str, bytes or os.PathLike object, not Partition" in output

    code, output = _run("--dsn", dsn, "--archive", str(tmp_path / "archive"), "--json")
    assert code == 0
    assert [(each["name"], each["archived"], each["rows"]) for each in json.loads(output)["dropped"]] == [
        (name, True, 12) for name in NAMES
    ]


def test_pg_cron_statement_is_printed_where_it_is_not_installed(dsn: str) -> None:
    code, output = _run("schedule", "--dsn", dsn, command="partitions")

    assert code == 0
    assert output.startswith("SELECT cron.schedule_in_database('projections-maintain', '* * * * *', ")
    assert "run this in the one that it is in" in output
    told = json.loads(_run("schedule", "--dsn", dsn, "--json", command="partitions")[1])
    assert (told["scheduled"], f"{told['statement']};" in output) == (False, True)


@pytest.mark.slow
async def test_every_goes_on_until_it_is_stopped(database: Database, dsn: str) -> None:
    command = [*COMMAND, "maintain", "--dsn", dsn, "--every", "1s", "--ahead", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            made = "SELECT count(*) >= 2 FROM projections.partitions WHERE table_name = 'events' AND NOT is_default"
            await until(database, made)
            await keep(database, "events", ahead=1, retention=DAY)
            await execute(database, "SELECT projections._create_partition_v1($1, $2)", PAST, PAST + DAY)
            await until(
                database, "SELECT count(*) = 0 FROM projections.partitions WHERE to_timestamp < '2021-01-01Z'"
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=300) == 0
        finally:
            process.kill()


def test_partitions_are_listed_with_what_keeps_them(dsn: str) -> None:
    _filled(dsn, horizon=True)

    code, output = _run("list", "events", "--dsn", dsn, command="partitions")

    assert code == 0
    rows = {line.split("│")[2].strip(): line for line in output.splitlines() if line.startswith("│")}
    assert list(rows)[:3] == NAMES
    assert list(rows)[-1] == "events_default"
    assert "projection slow stands at 2020-01-02 01:00:00+00" in rows[NAMES[1]]
    assert "stands" not in rows[NAMES[0]]
    assert output.splitlines()[-1] == "events: 1d in a partition, 7 ahead, kept for 1d and until read"


def test_partitions_as_json_have_exact_rows_when_asked(dsn: str) -> None:
    _filled(dsn)

    told = json.loads(_run("--dsn", dsn, "--json", "--exact", command="partitions")[1])

    assert {each["table"] for each in told["partitions"]} == TABLES
    first = told["partitions"][0]
    assert (first["name"], first["rows"], first["default"], first["clustered"]) == (
        NAMES[0],
        12,
        False,
        False,
    )
    assert (first["from"], first["to"], first["kept_by"]) == (PAST.isoformat(), (PAST + DAY).isoformat(), [])
    assert told["settings"][0] == {
        "table": "events",
        "interval_seconds": 86_400,
        "ahead": 7,
        "retention_seconds": 86_400.0,
        "archive_first": False,
    }


def test_settings_are_changed_and_told(dsn: str) -> None:
    change = [
        "change",
        "events",
        "--interval",
        "90m",
        "--ahead",
        "14",
        "--retention",
        "90d",
        "--archive-first",
    ]

    code, output = _run(*change, "--dsn", dsn, command="partitions")

    assert (code, output) == (
        0,
        "events: 90m in a partition, 14 ahead, kept for 90d and until read, dropped only when archived\n",
    )
    back = _run(
        "change", "events", "--retention", "forever", "--no-archive-first", "--dsn", dsn, command="partitions"
    )
    assert back == (0, "events: 90m in a partition, 14 ahead, kept forever\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--interval", "1h"], 2, "Missing argument"),
        (["events"], 2, "nothing to change"),
        (
            ["sources", "--interval", "1h"],
            2,
            "no table 'sources' has partitions: there are events, matches, webhook_",
        ),
        (["events", "--ahead", "0"], 2, "0 is not in the range 1<=x<=1000"),
        (
            ["events", "--interval", "30s"],
            2,
            "interval is whole seconds from 1 minute to 366 days, not 0:00:30",
        ),
        (["events", "--retention", "never"], 2, "'never' is not a duration"),
        (["matches", "--archive-first"], 2, "only partitions of events are archived, not of matches"),
    ],
    ids=str,
)
def test_wrong_setting_is_refused(dsn: str, arguments: list[str], code: int, says: str) -> None:
    found, output = _run("change", *arguments, "--dsn", dsn, command="partitions")

    assert (found, says in output) == (code, True)


def _filled(dsn: str, *, horizon: bool = False) -> None:
    """Three days of which retention lets all go; the runner of commands needs no loop to run already."""

    async def fill() -> None:
        async with connect(dsn) as database:
            await filled(database)
            if horizon:
                await reader(database, PAST + DAY + HOUR)
            assert await past(database) == NAMES

    asyncio.run(fill())


def test_list_of_a_table_without_partitions_is_refused(dsn: str) -> None:
    code, output = _run("list", "sources", "--dsn", dsn, command="partitions")

    assert (code, "no table 'sources' has partitions" in output) == (2, True)
