"""How a bug is made: in a class, or in the text of an SQL file that is installed or sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from journal.schema import installing
from journal.sql_files import sql_root
from tests.mutants.mutant import Layer, mutant


def method(kind: Any, name: str, wrong: Any) -> AbstractContextManager[Any]:
    """Replace an attribute of a class or a module."""
    return mock.patch.object(kind, name, wrong)


@contextmanager
def sql(file: str, right: str, wrong: str) -> Iterator[None]:
    """
    Install a file of SQL with another text in it.

    Args:
        file: Its path below ``sql``.
        right: What stands there, exactly once.
        wrong: What is installed in its place.

    Raises:
        LookupError: It does not stand there once: the file was changed, and the bug has to be, too.
    """
    path = sql_root() / file
    if (found := path.read_text(encoding="utf-8").count(right)) != 1:
        raise LookupError(f"{file} has {right!r} {found} times, not once")
    read = installing._read

    def reads(one: Path) -> str:
        text = read(one)
        return text.replace(right, wrong) if one == path else text

    with mock.patch.object(installing, "_read", reads):
        yield


def in_sql(name: str, wrong: str, file: str, right: str, instead: str, *found_by: Layer) -> None:
    """
    Register a bug in a file of SQL.

    Args:
        name: As of :class:`Mutant`, like ``wrong`` and ``found_by``.
        wrong: What it does wrong.
        file: As of :func:`sql`, like ``right``.
        right: What stands there.
        instead: What is installed in its place.
        found_by: Who must find it.
    """
    mutant(name, wrong, f"sql/{file}", *found_by)(lambda: sql(file, right, instead))
