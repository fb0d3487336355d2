"""The help of every command, as a terminal of 100 columns shows it: a file for each group of commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import click

from projections.cli import main
from tests.golden.recordings import Files, Fresh

_WIDTH: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100}


def help_texts(_: Fresh) -> Files:
    """What ``--help`` says of a group and of the commands in it."""
    texts: dict[str, list[str]] = defaultdict(list)
    for path, command, context in commands():
        group = path if isinstance(command, click.Group) else path[:-1]
        command._help_option = (
            None  # Click keeps the one that it has shown: maybe that of a command without its group
        )
        texts[f"help/{'-'.join(group)}.txt"].append(
            f"$ {' '.join(path)} --help\n{command.get_help(context)}\n"
        )
    return {name: "\n".join(found) for name, found in texts.items()}


@cache
def commands_with_json() -> set[str]:
    """The commands that have an option ``--json``, each as it is written after ``projections``."""
    return {
        " ".join(path[1:])
        for path, command, _ in commands()
        if any("--json" in one.opts for one in command.params)
    }


def commands() -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    """Every command and group of commands: its words, itself, and the context in which it runs."""
    yield from _walk(main, ("projections",), None, **main.context_settings)


def _walk(
    command: click.Command, path: tuple[str, ...], parent: click.Context | None, **options: Any
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    context = click.Context(command, info_name=path[-1], parent=parent, **_WIDTH, **options)
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _walk(inner, (*path, name), context)
