"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import signal
import sys

import click

from journal import ProjectionsError


class CannotAsk(ProjectionsError):
    """A command would ask, and there is no terminal."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless ``yes`` was given; without a terminal, refuse."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CannotAsk("cannot ask for confirmation without a terminal: pass --yes")
    # A running loop would end at Ctrl-C once the question is answered.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm(question, abort=True)
    finally:
        signal.signal(signal.SIGINT, before)
