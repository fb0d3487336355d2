"""Commands that are derived from functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import click
import pytest
from click.testing import CliRunner

from projections.terminal.ages import failing_above
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.options import NotBefore
from projections.terminal.output import Answer, facts, listing, table_of, values_of

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Thing(NamedTuple):
    name: str
    count: int
    at: datetime
    took: timedelta | None = None


@dataclass(frozen=True)
class Which:
    tags: Annotated[tuple[str, ...], Opt("May be repeated.", "--tag")] = ()
    kind: Literal["a", "b"] = "a"


def run(function: Callable[..., Any], *arguments: str, **settings: Any) -> Any:
    command = click.command("it")(derived(**settings)(function))
    return CliRunner().invoke(command, arguments)


def said(
    name: str, more: Annotated[str | None, Arg("[MORE]")] = None, *, which: Which, limit: int = 5
) -> Answer:
    return Answer({"name": name, "more": more, "which": which, "limit": limit}, ["text"])


def test_what_is_before_the_star_is_an_argument_and_what_is_behind_it_an_option() -> None:
    result = run(said, "x", "--tag", "1", "--tag", "2", "--kind", "b", "--limit", "7", "--json")

    assert json.loads(result.stdout) == {
        "name": "x",
        "more": None,
        "which": {"tags": ["1", "2"], "kind": "b"},
        "limit": 7,
    }


def test_the_help_tells_defaults_and_choices() -> None:
    shown = " ".join(run(said, "--help").stdout.split())

    assert "Usage: it [OPTIONS] NAME [MORE]" in shown
    for text in ("--tag TEXT May be repeated.", "--kind [a|b] [default: a]", "--limit INTEGER [default: 5]"):
        assert text in shown


@pytest.mark.parametrize(
    "arguments", [[], ["x", "--kind", "c"], ["x", "--limit", "many"], ["x", "y", "z"], ["x", "--nosuch"]]
)
def test_a_command_line_that_does_not_fit_is_refused(arguments: list[str]) -> None:
    assert run(said, *arguments).exit_code == 2


def test_options_that_do_not_go_together_are_refused_before_anything_is_done() -> None:
    def check(options: Mapping[str, Any]) -> None:
        raise click.UsageError(f"not with {options['limit']}")

    def never(*, limit: int = 5) -> Answer:
        raise AssertionError(limit)

    result = run(never, check=check)

    assert (result.exit_code, "not with 5" in result.stderr) == (2, True)


def test_a_duration_and_a_time_are_read() -> None:
    def read(*, span: timedelta = timedelta(hours=1), start: datetime | None = None) -> Answer:
        return Answer({"span": span, "start": start}, [])

    assert json.loads(run(read, "--json").stdout) == {"span": 3600, "start": None}
    given = run(read, "--span", "2m", "--start", "2026-01-31T12:00:00Z", "--json").stdout
    assert json.loads(given) == {"span": 120, "start": NOON.isoformat()}
    assert "has no zone" in run(read, "--start", "2026-01-31").stderr


def test_a_time_to_come_is_never_how_long_ago_something_was() -> None:
    def read(*, at: NotBefore = None) -> Answer:
        return Answer({"at": at}, [])

    assert run(read, "--at", "2h").exit_code == 2
    assert json.loads(run(read, "--at", "2026-01-31T12:00:00Z", "--json").stdout) == {"at": NOON.isoformat()}


@pytest.mark.parametrize(("limit", "code"), [(None, 0), (1.5, 0), (1.4, 3), (2, 0)])
def test_a_lag_is_above_a_limit_and_not_at_it(limit: float | None, code: int) -> None:
    found = Answer({"things": [{"name": "a", "lag_seconds": 1.5}, {"name": "b", "lag_seconds": 0}]}, [])

    judged = failing_above(found, None if limit is None else timedelta(seconds=limit), "things")

    assert judged.exit_code == code
    assert judged.complaint == ("lag above 1.4 s: a (1.5 s)" if code else None)


def test_an_answer_ends_with_its_exit_code_and_its_complaint_on_stderr() -> None:
    def failing() -> Answer:
        return Answer({"good": False}, ["bad"], exit_code=3, complaint="why")

    for arguments, output in (([], "bad\n"), (["--json"], '{"good": false}\n')):
        result = run(failing, *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (3, output, "why\n")


def test_a_list_is_a_table_or_says_that_there_is_nothing() -> None:
    columns = {"name": "name", "count": "count"}
    some = listing("things", [Thing("[red]\x1b", 1200, NOON)], columns, "a note", nothing="none", next=None)

    assert listing("things", [], columns, nothing="none").shown == ["none"]
    assert some.shown[1] == "a note"
    assert some.values["next"] is None
    (row,) = zip(
        *(column.cells for column in table_of(columns, [Thing("[red]\x1b", 1200, NOON)]).columns), strict=True
    )
    assert [str(cell) for cell in row] == [r"[red]\x1b", "1,200"]


def test_facts_stand_below_one_another() -> None:
    assert facts({}, {"a": None, "name": "x\x1b"}).shown == ["a     -", r"name  x\x1b"]


@pytest.mark.parametrize("took", [None, timedelta(seconds=2)])
def test_a_duration_says_that_it_is_in_seconds(took: timedelta | None) -> None:
    values = values_of(Thing("a", 1, NOON, took), {"count"}, {"took"})

    assert values == {"name": "a", "at": NOON.isoformat(), "took_seconds": None if took is None else 2}
