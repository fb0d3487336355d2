"""Which model answers which statement: by the function that it calls, or by its text."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.postgres.errors import NotModelled
from tests.simulation.postgres.storage import Row

if TYPE_CHECKING:
    from tests.simulation.postgres.backend import Backend


class Touched(NamedTuple):
    """The result of a statement that returns no rows: how many it has changed."""

    rows: int


Model = Callable[..., Awaitable[Any]]

_CALL = re.compile(
    r"SELECT (?:(?P<columns>\*|[\w, ]+?) FROM )?"
    r"projections\.(?P<name>\w+)\((?P<arguments>[^()]*)\)(?: AS (?P<alias>\w+))?"
)
_SPACE = re.compile(r"\s+")
_FUNCTIONS: dict[str, Model] = {}
_STATEMENTS: dict[str, Model] = {}
_parsed: dict[str, Callable[[Backend, Sequence[Any]], Awaitable[Any]]] = {}


def function(model: Model) -> Model:
    """Have a model stand for the function of the schema ``projections`` that has its name."""
    _FUNCTIONS[model.__name__] = model
    return model


def statement(*texts: str) -> Callable[[Model], Model]:
    """Have a model stand for statements, whatever their spaces are."""

    def register(model: Model) -> Model:
        _STATEMENTS.update((_plain(text), model) for text in texts)
        step_of.cache_clear()
        return model

    return register


def _plain(sql: str) -> str:
    return _SPACE.sub(" ", sql).strip()


@lru_cache(maxsize=256)
def step_of(sql: str) -> str:
    """A short name of what a statement does, for the trace."""
    called = re.findall(r"projections\.(\w+?)(?:_v\d+)?\(", sql)
    if called:
        return str(called[-1].lstrip("_"))
    model = _STATEMENTS.get(_plain(sql))
    return sql.split(maxsplit=1)[0] if model is None else model.__name__.lstrip("_")


def run(db: Backend, sql: str, args: Sequence[Any]) -> Awaitable[list[Row] | Touched]:
    """
    Run the model of a statement.

    Raises:
        NotModelled: There is none.
        ServerError: As the server would, when it is awaited.
    """
    call = _parsed.get(sql)
    if call is None:
        call = _parsed[sql] = _parse(sql)
    return call(db, args)


def _parse(sql: str) -> Callable[[Backend, Sequence[Any]], Awaitable[Any]]:
    text = _plain(sql)
    if (model := _STATEMENTS.get(text)) is not None:
        return lambda db, args: model(db, *args)
    called = _CALL.fullmatch(text)
    if called is None or called["name"] not in _FUNCTIONS:
        raise NotModelled(f"the simulated PostgreSQL does not know this statement: {text}")
    return _called(called, _FUNCTIONS[called["name"]])


def _called(call: re.Match[str], model: Model) -> Callable[[Backend, Sequence[Any]], Awaitable[Any]]:
    constants = {"TRUE": True, "FALSE": False, "NULL": None}
    arguments = [one.strip() for one in call["arguments"].split(",") if one.strip()]
    if unknown := [one for one in arguments if not one.startswith("$") and one not in constants]:
        raise NotModelled(f"arguments of {call['name']}: {unknown}")
    columns = call["columns"]
    chosen = None if columns in {None, "*"} else [column.strip() for column in columns.split(",")]

    places = [None if one in constants else int(one[1:]) - 1 for one in arguments]

    async def run_it(db: Backend, args: Sequence[Any]) -> list[Row]:
        values = [
            constants[one] if place is None else args[place]
            for one, place in zip(arguments, places, strict=True)
        ]
        found = await model(db, *values)
        if columns is None:  # what a set-returning function gives for each row is one column, too
            values = found if isinstance(found, list) else [found]
            return [{call["alias"] or call["name"]: value} for value in values]
        return found if chosen is None else [{name: row[name] for name in chosen} for row in found]

    return run_it
