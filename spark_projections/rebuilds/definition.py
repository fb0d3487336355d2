"""What of a projection a batch needs to know: which tables it writes, and whether it can be run as one at all."""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from journal import ALL_SLICES, SliceRange
from projections.defining import AtLeastOnce, Kind, Projection, Table, projection_of
from spark_projections.errors import NotRebuildable

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = {"journal", "offsets", "projections", "spark_projections"}


class WrittenTable(NamedTuple):
    """A table that a projection writes."""

    name: tuple[str, ...]
    """``(table,)`` or ``(schema, table)``, as it is declared."""
    table: Table | None
    """Its declaration; a handler that writes by itself has none."""

    @property
    def shared(self) -> bool:
        """Whether rows are made of the events of several sources, and combined by their operations."""
        return self.table is not None and not self.table.per_source

    def __str__(self) -> str:
        return ".".join(self.name)


def rebuildable(definition: Any, slices: SliceRange = ALL_SLICES) -> tuple[Projection, list[WrittenTable]]:
    """
    Check that a projection can be run as a batch over a range of slices.

    Args:
        definition: A class (or object of a class) decorated with :func:`projections.projection`.
        slices: The range.

    Returns:
        What it declares, and the tables that it writes.

    Raises:
        InvalidHandler: It is not a projection.
        NotRebuildable: Its effects are outside the database, its tables are not known, or rows of the range cannot
            be told from others.
    """
    projection = projection_of(definition)
    if isinstance(projection.delivery, AtLeastOnce):
        raise NotRebuildable(
            f"projection {projection.name!r} cannot be rebuilt: its delivery is AtLeastOnce, so its effects are "
            "outside the database, where a batch cannot put something alongside them and swap it in"
        )
    written = tables_of(definition)
    if not written:
        raise NotRebuildable(
            f"projection {projection.name!r} cannot be rebuilt: which tables it writes is not known; "
            "declare @projection(..., tables=('my_table',))"
        )
    _check_names(projection, written)
    if slices != ALL_SLICES:
        _check_sources(projection, written, slices)
    return projection, written


def _check_names(projection: Projection, written: list[WrittenTable]) -> None:
    names = [one.name[-1] for one in written]
    for name in names:
        if names.count(name) > 1:
            raise NotRebuildable(
                f"projection {projection.name!r} writes two tables named {name!r} in different schemas, which would "
                "be built in one: give one of them another name"
            )
        if name.startswith(("_staged_", "_offsets", "_last")):
            raise NotRebuildable(f"table {name!r} has a name that rebuilds use themselves: give it another")


def _check_sources(projection: Projection, written: list[WrittenTable], slices: SliceRange) -> None:
    for one in written:
        if one.table is None or one.table.source is None:
            raise NotRebuildable(
                f"slices {slices} of projection {projection.name!r} cannot be rebuilt by themselves: the rows of "
                f"table {one} cannot be told apart by slice; rebuild all slices, or declare "
                "Table(..., source='column') where a column of the key holds the source_id"
            )


def tables_of(definition: Any) -> list[WrittenTable]:
    """
    The tables that a projection writes, in one order everywhere.

    Those that it declares; of table handlers that declare none, those that their code names.
    """
    projection = projection_of(definition)
    declared: tuple[Table | str, ...] = projection.tables or ()
    if projection.tables is None and projection.kind is Kind.TABLE:
        declared = tuple(_named_by(definition))
    found = {_written(one).name: _written(one) for one in declared}
    return [found[name] for name in sorted(found)]


def _written(declared: Table | str) -> WrittenTable:
    if isinstance(declared, Table):
        return WrittenTable(declared.qualified_name, declared)
    return WrittenTable(tuple(declared.split(".", 1)), None)


def _named_by(definition: Any) -> Iterator[Table]:
    """Tables among the globals that the methods of its class use, and the functions that these call."""
    cls = definition if isinstance(definition, type) else type(definition)
    todo = [found for _, found in inspect.getmembers(cls, inspect.isfunction)]
    seen: set[Any] = set()
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        for value in _used(function):
            if isinstance(value, Table):
                yield value
            elif isinstance(value, FunctionType):
                todo.append(value)
    yield from (value for value in vars(cls).values() if isinstance(value, Table))


def _used(function: FunctionType) -> Iterator[Any]:
    """What a function reaches by a name: globals, and what it closes over."""
    names = set(_names(function.__code__))
    yield from (value for name, value in function.__globals__.items() if name in names)
    for name in names & function.__globals__.keys():  # tables.DELAYS, where `tables` is a module
        if inspect.ismodule(module := function.__globals__[name]):
            yield from (
                value for key, value in vars(module).items() if key in names and isinstance(value, Table)
            )
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def fingerprint(definition: Any, *options: object) -> str:
    """
    Tell two states of a projection's code and options apart: what one has begun, the other must not go on with.

    The code is its module and every module that is reached from there, without Python's own and installed packages.
    Code that is in no file, as in a notebook, is different each time.
    """
    cls = definition if isinstance(definition, type) else type(definition)
    found = hashlib.sha256(
        repr((cls.__module__, cls.__qualname__, projection_of(definition).version, options)).encode()
    )
    for module in sorted(_reached(cls.__module__)):
        path = _file_of(module)
        found.update(secrets.token_bytes(32) if path is None else path.read_bytes())
    return found.hexdigest()


def _reached(name: str) -> set[str]:
    """The names of the application's modules that a module uses, itself included."""
    found: set[str] = set()
    todo = [name]
    while todo:
        module = sys.modules.get(name := todo.pop())
        if module is None or name in found or (name.split(".")[0] in _OURS or _is_installed(name)):
            continue
        found.add(name)
        for value in list(vars(module).values()):
            used = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
            if isinstance(used, str):
                todo.append(used)
    return found


def _is_installed(name: str) -> bool:
    path = _file_of(name)
    return name != "__main__" if path is None else str(path).startswith(_INSTALLED)


def _file_of(name: str) -> Path | None:
    path = getattr(sys.modules.get(name), "__file__", None)
    return Path(path) if path is not None and Path(path).is_file() else None
