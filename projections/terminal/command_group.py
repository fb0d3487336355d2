"""What all commands share: modules loaded when they are used, errors shown as one line, and exit codes."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import click

from journal import InvalidValue, ProjectionsError
from journal.database import hide_password
from journal.suggestions import did_you_mean
from projections.extras import registered

INTERRUPTED = 130
"""What a shell shows for a command that Ctrl-C ended."""
_LONGEST_SUMMARY = 200
"""Characters of a first sentence in the list of commands."""


class LazyCommand(NamedTuple):
    """A command in a module of its own, imported when it runs."""

    path: str
    """``"package.module:attribute"``"""
    summary: str
    """Its line in the list of commands."""

    def load(self) -> click.Command:
        """Import the module; returns its command."""
        module, attribute = self.path.split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - a mistake of ours, not of the user
        return command


def exit_code_of(error: ProjectionsError) -> int:
    """2 where a value that was given is invalid, as for a command line that is wrong; else 1."""
    return 2 if isinstance(error, InvalidValue) else 1


class _Failure(click.ClickException):
    """An error of this library on the command line: ``error: ...`` on stderr."""

    def __init__(self, error: ProjectionsError) -> None:
        super().__init__(hide_password(" ".join(str(error).split())))
        self.exit_code = max(self.exit_code, exit_code_of(error))  # type: ignore[misc]  # of a class, to click

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.format_message()}", err=True, file=file)


class _NotCompared(_Failure):
    exit_code = 2


class ComparingCommand(click.Command):
    """
    A command whose exit code 1 says that something differs, and nothing else.

    Whatever keeps it from comparing ends it with exit code 2, as a wrong command line does, and Ctrl-C with 130.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except ProjectionsError as error:
            raise _NotCompared(error) from error
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except Exception:  # noqa: BLE001 - of a handler's own code, or of ours: Python would end with 1
            traceback.print_exc()
            ctx.exit(_NotCompared.exit_code)


class CommandGroup(click.Group):
    """
    A group whose commands are loaded when they are used, and fail with one line instead of a traceback.

    Args:
        lazy: Its commands by their names, in the order of the help.
        entry_points: The group of entry points by which other packages add commands; each names such a mapping.
        arguments: Those of :class:`click.Group`.
    """

    def __init__(
        self,
        *,
        lazy: Mapping[str, LazyCommand] | None = None,
        entry_points: str | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self._own = dict(lazy or {})
        self._entry_points = entry_points

    @cached_property
    def _lazy(self) -> dict[str, LazyCommand]:
        """Its own commands, then those of other packages, whose mappings are imported here."""
        found = dict(self._own)
        if self._entry_points is not None:
            for commands in registered(self._entry_points):
                found.update((name, one) for name, one in commands.items() if name not in found)
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        lazy = self._own.get(cmd_name) or self._lazy.get(cmd_name)
        return lazy.load() if lazy else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first, and the rest."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(self.unknown(ctx, name))
        return super().resolve_command(ctx, args)

    def unknown(self, ctx: click.Context, name: str) -> str:
        """What to say about a command that does not exist."""
        return f"No such command {name!r}{did_you_mean(name, self.list_commands(ctx)) or '.'}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click passes it
        """List the commands, each with its whole first sentence; those that are lazy without importing them."""
        summaries = [(name, command.summary) for name, command in self._lazy.items()]
        summaries += [
            (name, command.get_short_help_str(_LONGEST_SUMMARY))
            for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(summaries)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except ProjectionsError as error:
            raise _Failure(error) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


class ListGroup(CommandGroup):
    """
    The commands of a kind of things, such as ``projections groups``: without the name of a command it runs ``list``.

    What is named first is always a command, never a thing: to show one by its name, there is ``show``.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``list`` before options that are not a request for help."""
        unnamed = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if unnamed and not ctx.resilient_parsing:  # which is when a shell completes
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def unknown(self, ctx: click.Context, name: str) -> str:
        """Say how to show the thing that was perhaps meant."""
        hint = f" To show one: {ctx.command_path} show {name}" if "show" in self.commands else ""
        return super().unknown(ctx, name) + hint
