"""How a bug is made: in a class, in the text of a function, or in that of an SQL file that is installed or sent."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType
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
    _replaced(path.read_text(encoding="utf-8"), right, wrong, file)
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
def python(code: str, right: str, wrong: str) -> Iterator[None]:
    """
    Compile a function again from its source with another text in it; whoever has imported it calls that.

    Args:
        code: Where it is, as of :class:`Mutant`: ``package/module.py: Class.method``, or a text of the module.
        right: What stands there, exactly once.
        wrong: What is compiled in its place.

    Raises:
        LookupError: It does not stand there once: the function was changed, and the bug has to be, too.
    """
    file, _, name = code.partition(": ")
    module = import_module(file.removesuffix(".py").replace("/", "."))
    found = attrgetter(name)(module)
    if isinstance(found, str):
        with method(module, name, _replaced(found, right, wrong, code)):
            yield
        return
    function = _function(found)
    before = function.__code__
    function.__code__ = _compiled(module, function, right, wrong, code)
    try:
        yield
    finally:
        function.__code__ = before


def _function(found: Any) -> FunctionType:
    """The function behind a method of a class, a property or a decorator."""
    function = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
    assert isinstance(function, FunctionType)
    return function


def _compiled(module: Any, function: FunctionType, right: str, wrong: str, code: str) -> CodeType:
    """Its code in the module's, which has the same variables around it."""
    lines, first = inspect.getsourcelines(function)
    every = inspect.getsource(module).splitlines(keepends=True)
    every[first - 1 : first - 1 + len(lines)] = [_replaced("".join(lines), right, wrong, code)]
    found = compile("".join(every), str(module.__file__), "exec", dont_inherit=True)
    for name in function.__qualname__.split("."):
        found = next(one for one in found.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return found


def _replaced(text: str, right: str, wrong: str, where: str) -> str:
    if (found := text.count(right)) != 1:
        raise LookupError(f"{where} has {right!r} {found} times, not once")
    return text.replace(right, wrong)


def in_python(name: str, wrong: str, code: str, right: str, wrong_text: str, *found_by: Layer) -> None:
    """
    Register a bug in the text of a function of Python.

    Args:
        name: As of :class:`Mutant`, like ``wrong`` and ``found_by``.
        wrong: What it does wrong.
        code: As of :func:`python`, like ``right``.
        right: What stands there.
        wrong_text: What is compiled in its place.
        found_by: Who must find it.
    """
    mutant(name, wrong, code, *found_by)(lambda: python(code, right, wrong_text))
