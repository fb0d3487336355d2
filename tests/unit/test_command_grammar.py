"""What all commands have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from projections.cli import main
from projections.terminal.command_group import ListGroup


def walk(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, *path, name)


GROUPS = {path: command for path, command in walk(main) if isinstance(command, click.Group)}
VERBS = "list", "show", "add", "change", "remove", "retry", "drop", "cancel", "release", "delete", "clear"
LISTS = sorted(path for path, group in GROUPS.items() if "list" in group.commands)


def test_every_group_that_has_a_list_shows_it_when_nothing_else_is_asked_of_it() -> None:
    others = {path for path, group in GROUPS.items() if path and not isinstance(group, ListGroup)}

    assert others == {"archive", "schema", "webhooks"}
    assert {path for path, group in GROUPS.items() if isinstance(group, ListGroup)} <= set(LISTS)


@pytest.mark.parametrize("path", ["archive", "schema", "webhooks"])
def test_a_group_that_lists_nothing_prints_its_help(path: str) -> None:
    result = CliRunner().invoke(main, path.split())

    assert result.exit_code == 2
    assert f"Usage: main {path} [OPTIONS] COMMAND" in result.output


@pytest.mark.parametrize(
    "path", sorted(path for path, group in GROUPS.items() if isinstance(group, ListGroup))
)
def test_a_name_is_never_taken_for_a_command_or_the_other_way_round(path: str) -> None:
    result = CliRunner().invoke(main, [*path.split(), "nosuch"])

    assert (result.exit_code, "No such command 'nosuch'" in result.output) == (2, True)


@pytest.mark.parametrize(("words", "found"), [("gr", "plain,groups"), ("groups res", "plain,rescale")])
def test_the_shell_completes_commands(words: str, found: str) -> None:
    told = {
        "_MAIN_COMPLETE": "bash_complete",
        "COMP_WORDS": f"main {words}",
        "COMP_CWORD": str(len(words.split())),
    }

    result = CliRunner(env=told).invoke(main, prog_name="main")

    assert result.output == f"{found}\n"


def test_every_command_that_ends_prints_json_on_request() -> None:
    running = {"worker", "monitor", "webhooks deliver", "webhooks page", "webhooks serve"}
    without = {
        path
        for path, command in walk(main)
        if not isinstance(command, click.Group) and "as_json" not in {one.name for one in command.params}
    }

    assert without == running | {"schema print"}


def test_no_flag_replaces_a_verb() -> None:
    found = {
        f"{path} {one.opts[0]}"
        for path, command in walk(main)
        for one in command.params
        if isinstance(one, click.Option) and one.is_flag and one.opts[0].removeprefix("--") in VERBS
    }

    assert found == set()


def test_no_help_shows_what_a_merge_has_left() -> None:
    left = {path for path, command in walk(main) if re.search("<{7}|>{7}", command.help or "")}

    assert left == set()


@pytest.mark.parametrize("path", GROUPS)
def test_the_commands_of_a_group_are_listed_with_a_whole_sentence(path: str) -> None:
    result = CliRunner().invoke(main, [*path.split(), "--help"])

    listed = result.output.partition("\nCommands:\n")[2]
    assert listed
    assert "..." not in listed


def test_every_option_says_what_it_is() -> None:
    silent = {
        f"{path} {one.opts[0]}"
        for path, command in walk(main)
        for one in command.params
        if isinstance(one, click.Option) and not one.help and not one.hidden
    }

    assert silent == set()
