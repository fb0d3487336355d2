"""The commands of subscriptions."""

from projections.terminal.command_group import LazyCommand

__all__ = ["COMMANDS"]

COMMANDS = {
    "groups": LazyCommand(
        "projections.subscriptions.commands.groups:groups",
        "Show how far groups of consumers are; rescale them, and decide about what failed.",
    ),
    "subscriptions": LazyCommand(
        "projections.subscriptions.commands.subscriptions:subscriptions",
        "Show, release and remove subscriptions of groups.",
    ),
    "subscribe": LazyCommand(
        "projections.subscriptions.commands.subscribe:subscribe", "Subscribe a group to events."
    ),
    "publish": LazyCommand(
        "projections.subscriptions.commands.publish:publish", "Publish a payload under a topic."
    ),
}
