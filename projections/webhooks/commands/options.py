"""Options that several commands of webhooks have."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from projections.durations import InvalidDuration, parse_duration
from projections.terminal.options import iso_time, together
from projections.webhooks.addresses import AddressRules

__all__ = [
    "address_options",
    "past",
    "rules_of",
    "secret_of",
    "tenant_option",
    "text_of",
]

tenant_option = click.option("--tenant", metavar="TENANT", help="Only this tenant's. Default: of all.")


def past(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """Read a time, or how long ago it was; a callback of options."""
    if value is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(value)
    except OverflowError:
        raise click.BadParameter(f"{value!r} is before all times") from None
    except InvalidDuration:
        pass
    try:
        return iso_time(context, parameter, value)
    except click.BadParameter:
        raise click.BadParameter(
            f"{value!r} is no time: write 2h for two hours ago, or 2026-01-31T12:00:00Z"
        ) from None


address_options = together(
    click.option(
        "--allow-address", "allow_addresses", multiple=True, metavar="CIDR|NAME",
        help="Beside public ones, such as 127.0.0.0/8 for development; may be repeated.",
    ),
    click.option(
        "--deny-address", "deny_addresses", multiple=True, metavar="CIDR|NAME",
        help="Never these, whatever is allowed; may be repeated.",
    ),
    click.option(
        "--only-port", "only_ports", multiple=True, type=click.IntRange(1, 65_535), metavar="PORT",
        help="Only these. Default: all but those of mail, databases and the like; may be repeated.",
    ),
)  # fmt: skip


def rules_of(
    allow_addresses: Sequence[str], deny_addresses: Sequence[str], only_ports: Sequence[int]
) -> AddressRules:
    """
    The rules that the address options give.

    Raises:
        InvalidEndpoint: An entry is neither a network nor a name.
    """
    return AddressRules(tuple(allow_addresses), tuple(deny_addresses), tuple(only_ports) or None)


def text_of(value: str) -> str:
    """
    What an argument stands for: ``-`` for what stdin has, ``@file`` for what a file has, else itself.

    Raises:
        click.BadParameter: The file can not be read, or is no UTF-8.
    """
    try:
        if value == "-":
            return sys.stdin.buffer.read().decode().strip()
        if value.startswith("@"):
            return Path(value[1:]).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{value!r} is no UTF-8: {error}") from None
    except OSError as error:
        raise click.BadParameter(f"{value[1:]!r} can not be read: {error.strerror}") from None
    return value


def secret_of(file: str | None) -> str | None:
    """
    The secret that a file has, or stdin for ``-``; None without one. It is never taken from the command line.

    Raises:
        click.BadParameter: The file can not be read.
    """
    return None if file is None else text_of(file if file == "-" else f"@{file}")
