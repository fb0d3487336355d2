"""The reference of the command line: what `--help` of each command says."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING

import click

from projections.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INTRODUCTION = """# Commands

This is what each command prints with `--help`.
"""


def commands_page() -> str:
    """Describe every command, its arguments and its options."""
    return "\n".join([_INTRODUCTION, *_described(main, ["projections"], None)])


def _described(command: click.Command, path: Sequence[str], parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=path[-1], parent=parent)
    yield f"{'#' * min(len(path) + 1, 6)} `{' '.join(path)}`\n"
    yield f"```text\n{' '.join([*path, *command.collect_usage_pieces(context)])}\n```\n"
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        yield _paragraph(paragraph.strip())
    options = [
        record
        for parameter in command.get_params(context)
        if parameter.name != "help" and (record := parameter.get_help_record(context))
    ]
    if options:
        yield "| option | meaning |\n| --- | --- |"
        yield from (f"| `{_cell(option)}` | {_cell(text)} |" for option, text in options)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _described(inner, [*path, name], context)


def _paragraph(text: str) -> str:
    """Click's mark for lines that stay as they are is a backspace on a line of its own."""
    kept = text.startswith("\b")
    return f"```text\n{text[1:].strip(chr(10))}\n```\n" if kept else text.replace("<", "&lt;") + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
