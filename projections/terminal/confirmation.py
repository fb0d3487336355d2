"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import signal
import sys

import click

from journal import ProjectionsError

__all__ = ["NobodyToAsk", "confirm"]


class NobodyToAsk(ProjectionsError):
    """A command would ask, and there is no terminal."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless ``yes`` was given; without a terminal there is nobody to ask, and nothing is done."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NobodyToAsk("nobody is here to ask: pass --yes")
    # A running loop would end at Ctrl-C once the question is answered.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm(question, abort=True)
    finally:
        signal.signal(signal.SIGINT, before)
