"""What is asked before something is done that cannot be undone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from projections.terminal.confirmation import CannotAsk, confirm


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where somebody types who is at a terminal."""
    typed, read = os.openpty()
    with os.fdopen(read, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield typed
    os.close(typed)


def test_a_yes_is_one(terminal: int) -> None:
    os.write(terminal, b"y\n")
    confirm("Remove it?", yes=False)


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_whatever_else_is_said_ends_the_command(terminal: int, answer: str) -> None:
    os.write(terminal, answer.encode())
    with pytest.raises(click.Abort):
        confirm("Remove it?", yes=False)


def test_where_nobody_can_be_asked_it_has_to_be_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        confirm("Remove it?", yes=True)
        with pytest.raises(CannotAsk, match="--yes"):
            confirm("Remove it?", yes=False)
