"""``projections maintain`` from the command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from projections.cli import main


def _run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["maintain", *arguments])
    return result.exit_code, result.output


def test_json_lists_what_was_made_and_a_second_run_makes_nothing(dsn: str) -> None:
    code, output = _run("--dsn", dsn, "--interval", "12h", "--ahead", "2", "--json")
    again = _run("--dsn", dsn, "--interval", "12h", "--ahead", "2", "--json")

    made = json.loads(output)["partitions"]
    assert code == 0
    assert [(p["moved"], p["problem"]) for p in made] == [(0, None)] * 3
    assert [p["from"] for p in made[1:]] == [p["to"] for p in made[:-1]]
    assert again == (0, '{"partitions": []}\n')


def test_lines_say_what_was_made(dsn: str) -> None:
    code, output = _run("--dsn", dsn, "--ahead", "1")

    assert code == 0
    assert all(line.endswith(" UTC: 0 events moved") for line in output.splitlines())
    assert _run("--dsn", dsn, "--ahead", "1") == (0, "nothing to do\n")


@pytest.mark.parametrize("interval", ["1", "1w", "0d", "-1d", "1.5h", ""])
def test_interval_that_is_no_duration_is_refused(interval: str) -> None:
    code, output = _run("--interval", interval)

    assert code == 2
    assert "is no duration: write 30m, 12h or 1d" in output


def test_database_without_the_schema_says_what_to_do(empty_dsn: str) -> None:
    code, output = _run("--dsn", empty_dsn)

    assert code == 1
    assert "projections schema install" in output
