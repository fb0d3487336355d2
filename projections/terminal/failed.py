"""What all commands share that list, show, retry and drop what could not be handled."""

from __future__ import annotations

from typing import Literal

import click

from projections.terminal.options import echo_json

__all__ = ["all_option", "echo_decided", "limit_option", "one_or_all", "tell_more", "yes_option"]

all_option = click.option("--all", "every", is_flag=True, help="All that wait for a decision.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="List at most so many."
)


def one_or_all(name: str, one: object, *, every: bool) -> None:
    """Refuse a command line that names neither one (called ``name``) nor all, or both: ``click.UsageError``."""
    if (one is None) != every:
        raise click.UsageError(f"pass either {name} or --all")


def echo_decided(did: Literal["retried", "dropped"], what: str, count: int, *, as_json: bool) -> None:
    """Print how many of what, in the plural, were decided about; as JSON, one object with the count alone."""
    if as_json:
        echo_json(**{did: count})
    else:
        click.echo(f"{what} {did}: {count:,}")


def tell_more(count: int, limit: int) -> None:
    """Say below a list that it may have been cut."""
    if count == limit:
        click.echo("there may be more: --limit")
