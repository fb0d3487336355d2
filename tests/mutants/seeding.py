"""How a bug is made: in a class, in the text of a function, or of an SQL file that is installed or sent."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

from journal.schema import installing
from journal.sql_files import sql_root
from tests.mutants.mutant import Layer, mutant

_ROOT = Path(__file__).parents[2]


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


@contextmanager
def python(code: str, right: str, instead: str) -> Iterator[None]:
    """
    Have a function do what it would do with another text in it, wherever it was imported to.

    Defaults of its parameters, its decorators and what it was made with stay as they are.

    Args:
        code: Its file and its name in that, as of :class:`Mutant`: ``journal/reader.py: SliceReader.page``.
        right: What stands in it, exactly once.
        instead: What is compiled in its place.

    Raises:
        LookupError: It does not stand there once: the function was changed, and the bug has to be, too.
    """
    file, _, name = code.partition(": ")
    text = (_ROOT / file).read_text(encoding="utf-8")
    begins, ends = _extent(text, name)
    if (found := text[begins:ends].count(right)) != 1:
        raise LookupError(f"{name} of {file} has {right!r} {found} times, not once")
    wrong = text[:begins] + text[begins:ends].replace(right, instead) + text[ends:]
    function = _function(import_module(file.removesuffix(".py").replace("/", ".")), name)
    before, function.__code__ = function.__code__, _compiled(compile(wrong, file, "exec"), name)
    try:
        yield
    finally:
        function.__code__ = before


def _extent(text: str, name: str) -> tuple[int, int]:
    """Where the definition of a function begins and ends in the text of its module: the last, behind its overloads."""
    found: Any = ast.parse(text)
    for part in name.split("."):
        found = [one for one in found.body if getattr(one, "name", None) == part][-1]
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    return starts[found.lineno - 1], starts[found.end_lineno]


def _function(module: Any, name: str) -> Any:
    """The function itself, whatever makes it a method, a property or a command."""
    found = reduce(inspect.getattr_static, name.split("."), module)
    for inner in ("__func__", "fget", "func", "callback"):
        found = getattr(found, inner, found)
    return inspect.unwrap(found)


def _compiled(outer: CodeType, name: str) -> CodeType:
    """The code of a function in that of its module or class."""
    inside = [one for one in outer.co_consts if isinstance(one, CodeType)]
    found = [one for one in inside if one.co_qualname == name or name.startswith(f"{one.co_qualname}.")][-1]
    return found if found.co_qualname == name else _compiled(found, name)


def in_python(name: str, wrong: str, code: str, right: str, instead: str, *found_by: Layer) -> None:
    """
    Register a bug in a function.

    Args:
        name: As of :class:`Mutant`, like ``wrong``, ``code`` and ``found_by``.
        wrong: What it does wrong.
        code: As of :func:`python`, like ``right``.
        right: What stands there.
        instead: What is compiled in its place.
        found_by: Who must find it.
    """
    mutant(name, wrong, code, *found_by)(lambda: python(code, right, instead))
