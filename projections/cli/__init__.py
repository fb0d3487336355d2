"""
The command ``projections``.

A command of the core is a module of this package and a line in ``_COMMANDS``; it is imported when it runs. Monitoring
has a mapping like it; packages above register theirs by entry points of the group ``projections.commands``.
"""

from __future__ import annotations

import click

from projections.monitoring.commands import COMMANDS as MONITORING
from projections.terminal.command_group import CommandGroup, LazyCommand

__all__ = ["main"]

_COMMANDS = {
    "schema": LazyCommand("projections.cli.schema:schema", "Install, upgrade and check the database schema."),
    "worker": LazyCommand("projections.cli.worker:worker", "Run projections, together with other workers."),
    "status": LazyCommand(
        "projections.cli.status:status", "Show who runs projections, and how far they are."
    ),
    **MONITORING,
    "workers": LazyCommand("projections.cli.workers:workers", "Show the processes that run projections."),
    "remove": LazyCommand("projections.cli.remove:remove", "Remove a projection that is given up."),
    "mode": LazyCommand(
        "projections.cli.mode:mode", "Have a projection handled by those who append, or by workers."
    ),
    "rescale": LazyCommand(
        "projections.cli.rescale:rescale", "Cut a projection into another number of ranges."
    ),
    "pause": LazyCommand("projections.cli.status:pause", "Pause a projection."),
    "resume": LazyCommand("projections.cli.status:resume", "Let a paused projection go on."),
    "wait": LazyCommand("projections.cli.wait:wait", "Wait until projections have handled an append."),
    "offsets": LazyCommand(
        "projections.cli.offsets:offsets", "Show, verify, set and clear the offsets of projections."
    ),
    "parked": LazyCommand(
        "projections.cli.parked:parked", "List, show, retry and drop events that could not be handled."
    ),
    "audit": LazyCommand(
        "projections.cli.audit:audit", "Compare what was committed with what was handled, event by event."
    ),
    "demo": LazyCommand(
        "projections.demo.command:demo", "Run real flights through it, and prove the result."
    ),
    "journals": LazyCommand(
        "projections.cli.journals:journals", "List, show, attach and detach journals of other systems."
    ),
    "captures": LazyCommand(
        "projections.cli.captures:captures", "List, add and release tables whose changes append events."
    ),
    "maintain": LazyCommand(
        "projections.cli.maintain:maintain",
        "Make time partitions, and drop old ones when all have read them.",
    ),
    "partitions": LazyCommand(
        "projections.cli.partitions:partitions",
        "List time partitions and what keeps them; change how they are kept.",
    ),
    "doctor": LazyCommand(
        "projections.cli.doctor:doctor", "Say what is installed, and look for what is wrong."
    ),
}


@click.group(
    cls=CommandGroup,
    lazy=_COMMANDS,
    entry_points="projections.commands",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="slice-projections", prog_name="projections")
def main() -> None:
    """
    Exactly-once projections over an event journal in PostgreSQL.

    Applications append events to a journal; projections read them in slices and write read models.

    \b
    Begin with
      projections schema install     make the schema in your database
      projections schema verify      compare it with what this version needs
      projections worker my_module   run the projections defined in my_module.py

    The database is the one that --dsn names, else PROJECTIONS_DSN. With neither, a PostgreSQL of your own
    starts when a command needs it, keeps its data in your user data folder, and is not on the network.

    \b
    Exit codes
      0    done; or stopped by SIGTERM, of a command that runs until it is stopped
      1    refused, failed, or differences were found; the reason is on stderr
      2    the command line itself is wrong, or a value in it
      130  stopped by SIGINT (Ctrl-C)
    `worker`, `lag`, `groups list`, `verify` and `demo` have more; their help lists them.

    A DURATION is written as 500ms, 30s, 5m, 1h30m or 1d.

    \b
    Completion with the Tab key, in bash (zsh: zsh_source, fish: fish_source)
      eval "$(_PROJECTIONS_COMPLETE=bash_source projections)"
    """  # noqa: D301 - click reads the escape
