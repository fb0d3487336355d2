"""The commands that show how far projections are behind."""

from projections.terminal.command_group import LazyCommand

__all__ = ["COMMANDS"]

COMMANDS = {
    "lag": LazyCommand("projections.monitoring.commands.lag:lag", "Show how far projections are behind."),
    "monitor": LazyCommand(
        "projections.monitoring.commands.monitor:monitor",
        "Serve a page that shows the lag of every slice, live.",
    ),
}
