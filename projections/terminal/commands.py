"""
Commands derived from functions: parameters become arguments and options, and what is returned is printed.

    @parked.command(name="list")
    @derived
    async def list_(session: Session, /, name: str | None = None, *, limit: Limit = 100) -> Answer:
        '''List the sources that wait, of one projection or of all.'''
        found = await ParkedSources(session).list(name, limit=limit)
        return listing("parked", found, _COLUMNS, nothing="no source is parked")

What stands before the ``/`` is given: a :class:`click.Context`, by ``click.pass_context``, or the database, which makes
it a command with ``--dsn``. A parameter before the ``*`` is an argument, one after it an option. A function that
returns an :class:`Answer` is a command with ``--json``.

A command on projections names its sides: with ``sides="read"`` it has ``--read-side``, too, and the database that it
is given is the one of the read models; with ``sides="both"`` also ``--journal`` and ``--journal-primary``, and it is
given a ``Log`` after it, or None where the journal is in that same database. With ``sides="all"`` there may be several
journals, and it is given a list of those that are in other databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import click

from journal import Database, OwnedSession, Session
from projections.durations import Duration, duration_text
from projections.terminal.connection import (
    connected_journal,
    connected_journals,
    read_side_alone,
    visit,
    visit_database,
    visit_session,
)
from projections.terminal.connection import sides as databases_of
from projections.terminal.output import Answer
from projections.terminal.times import Time
from projections.terminal.watching import watch

Check: TypeAlias = Callable[[Mapping[str, Any]], None]
Named: TypeAlias = Literal["read", "both", "all"] | None

_READING = ("both", "all")
_VISITS: dict[Any, Callable[..., Any]] = {
    Session: visit,
    OwnedSession: visit_session,
    Database: visit_database,
}
_TYPES: dict[Any, Any] = {
    timedelta: Duration(),
    Path: click.Path(path_type=Path),
    Any: None,
}


class Opt:
    """
    What an option has alongside the name, the type and the default of its parameter.

    Args:
        help: The text in the help of the command.
        names: Its names on the command line, where they are not the parameter's.
        attributes: Others of :class:`click.Option`, such as ``metavar`` and ``type``.
    """

    def __init__(self, help: str | None = None, *names: str, **attributes: Any) -> None:  # noqa: A002 - click's name
        self.names = names
        self.attributes = attributes | ({} if help is None else {"help": help})


class Arg:
    """What an argument has alongside the name and the type of its parameter: attributes of :class:`click.Argument`."""

    def __init__(self, metavar: str | None = None, **attributes: Any) -> None:
        self.attributes = attributes | {"metavar": metavar}


# Not read from the environment here: journal.embedded does, and its messages say where a wrong one came from.
Dsn = Annotated[
    str | None,
    Opt(
        "The database, such as postgresql://user@host/name. "
        "Default: PROJECTIONS_DSN, else the embedded server, started when it is needed.",
        metavar="DSN",
    ),
]
ReadSide = Annotated[
    str | None,
    Opt(
        "The database of the read models, where the journal is in another. Default: PROJECTIONS_READ_SIDE, else --dsn.",
        metavar="DSN",
    ),
]
Journal = Annotated[
    tuple[str, ...] | None,
    Opt(
        "The database of the journal, where read models are in another, or the name of a journal that is attached "
        "(`projections journals`). Of several journals, each is passed, and has a name: NAME=postgresql://... "
        "Default: PROJECTIONS_JOURNAL, else --dsn.",
        metavar="DSN|NAME|NAME=DSN",
    ),
]
JournalPrimary = Annotated[
    str | None,
    Opt(
        "The primary of the journal, where --journal names a standby of it. Default: PROJECTIONS_JOURNAL_PRIMARY.",
        metavar="DSN",
    ),
]
AsJson = Annotated[bool, Opt("Print one JSON object.", "--json")]
_Watches = Annotated[bool, Opt("Look again about every second, until Ctrl-C.", "--watch")]


class _Declared(NamedTuple):
    """A parameter of a function, or a field of one that is a dataclass, as its signature declares it."""

    name: str
    annotation: Any
    default: Any = MISSING
    argument: bool = False


@overload
def derived(function: Callable[..., Any]) -> Callable[..., None]: ...
@overload
def derived(
    *, watched: bool = False, check: Check | None = None, sides: Named = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]: ...
def derived(
    function: Callable[..., Any] | None = None,
    *,
    watched: bool = False,
    check: Check | None = None,
    sides: Named = None,
) -> Any:
    """
    Make the callback of a command out of a function; its parameters are declared as this module says.

    A bool is a flag, a ``Literal`` a choice; a tuple may be repeated; without a default it is required. ``Annotated``
    with :class:`Opt` or :class:`Arg` says the rest; of several :class:`Opt`, one may be given. A dataclass stands
    for its fields as options.

    Args:
        function: What the command does. It is asynchronous if it is given the database: a ``Session`` is in one
            transaction, an ``OwnedSession`` in none, and a ``Database`` has a few of them.
            Without it, this returns the decorator.
        watched: Whether there is ``--watch``, too, which asks again and again; of what has an ``OwnedSession``.
        sides: Which databases of projections may be named apart, if any.
        check: Refuses options that do not go together by a :class:`click.UsageError`, before the database is asked.
    """
    if function is None:
        return partial(derived, watched=watched, check=check, sides=sides)
    hints = get_type_hints(function)
    visited = next((_VISITS[kind] for kind in hints.values() if kind in _VISITS), None)
    parts: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parts.pop("return", None)

    @wraps(function)
    def command(*context: click.Context, **options: Any) -> None:
        for name, either in alternatives.items():
            options[name] = _one_of(either, options)
        if options.get("watches") and options.get("fail_above") is not None:
            raise click.UsageError("--watch looks until it is ended: pass it without --fail-above")
        if check is not None:
            check(options)
        for name, kind in parts.items():
            options[name] = kind(**{one.name: options.pop(one.name) for one in fields(kind)})
        as_json = options["as_json"] if "as_json" in hints else options.pop("as_json", False)
        work = partial(function, *context)
        answer = (
            work(**options)
            if visited is None
            else _visit_sides(visited, work, options, sides, as_json=as_json)
        )
        if answer is not None:
            answer.echo(as_json=as_json)
            click.get_current_context().exit(answer.exit_code)

    added = (
        (watched, _Declared("watches", _Watches, default=False)),
        (visited is not None, _Declared("dsn", Dsn, None)),
        (sides is not None, _Declared("read_side", ReadSide, None)),
        (sides in _READING, _Declared("journal", Journal, None)),
        (sides in _READING, _Declared("journal_primary", JournalPrimary, None)),
        (hints["return"] is Answer, _Declared("as_json", AsJson, default=False)),
    )
    declared = [*_declared(function), *(one for wanted, one in added if wanted)]
    found = {one.name: _parameters(one) for one in declared}
    alternatives = {name: several for name, several in found.items() if len(several) > 1}
    parameters = [one for each in found.values() for one in each]
    command.__click_params__ = parameters[::-1]  # type: ignore[attr-defined]  # where click looks for them
    return command


def _visit_sides(
    visited: Callable[..., Any],
    work: Callable[..., Any],
    options: dict[str, Any],
    sides: Named,
    *,
    as_json: bool,
) -> Answer:
    """The answer of the database; of a command on both sides, that of the read models alongside that of the journal."""
    dsn = options.pop("dsn")
    if sides is None:
        return _visit(visited, dsn, work, options, as_json=as_json)
    read_side = options.pop("read_side")
    if sides == "read":
        with read_side_alone(dsn, read_side) as alone:
            return _visit(visited, alone, work, options, as_json=as_json)
    with databases_of(dsn, options.pop("journal"), read_side, options.pop("journal_primary")) as found:

        async def on_both(place: Any, **values: Any) -> Answer:
            read: Any = connected_journals if sides == "all" else connected_journal
            async with read(found) as journal:
                answer: Answer = await work(place, journal, **values)
                return answer

        return _visit(visited, found.read_side, on_both, options, as_json=as_json)


def _visit(
    visited: Callable[..., Any],
    dsn: str | None,
    work: Callable[..., Any],
    options: dict[str, Any],
    *,
    as_json: bool,
) -> Answer:
    """The answer of the database; with ``--watch`` the command ends here, with its exit code."""
    watches = options.pop("watches", False)
    if not watches:
        answer: Answer = visited(dsn, lambda place: work(place, **options))
        return answer
    code = visited(dsn, lambda place: watch(lambda: work(place, **options), as_json=as_json))
    raise click.exceptions.Exit(code)


def _one_of(either: list[click.Parameter], options: dict[str, Any]) -> Any:
    """The value of the one that was given, of several options that set one parameter; they leave ``options``."""
    given = [value for one in either if (value := options.pop(one.name or "")) is not None]
    if len(given) > 1:
        names = ", ".join(one.opts[0] for one in either)
        raise click.UsageError(f"pass at most one of {names}")
    return given[0] if given else None


def _declared(function: Callable[..., Any]) -> Iterator[_Declared]:
    hints = get_type_hints(function, include_extras=True)
    for one in signature(function).parameters.values():
        kind = hints[one.name]
        if is_dataclass(kind):
            inner = get_type_hints(kind, include_extras=True)
            yield from (_Declared(field.name, inner[field.name], field.default) for field in fields(kind))
        elif one.kind is not Parameter.POSITIONAL_ONLY:
            default = MISSING if one.default is Parameter.empty else one.default
            yield _Declared(one.name, kind, default, one.kind is Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(one: _Declared) -> list[click.Parameter]:
    """An argument, or an option for each ``Opt``: several have names of their own, and set one parameter."""
    kind, *extra = get_args(one.annotation) if get_origin(one.annotation) is Annotated else (one.annotation,)
    attributes: dict[str, Any] = {"required": one.default is MISSING, **_typed(kind)}
    if one.default is not MISSING:
        attributes["default"] = (
            duration_text(one.default) if isinstance(one.default, timedelta) else one.default
        )
    if one.argument:
        said = next((each for each in extra if isinstance(each, Arg)), Arg())
        if attributes.pop("multiple", False):
            attributes |= {"nargs": -1, "required": False}
        return [click.Argument([one.name], **attributes | said.attributes)]
    default = attributes.get("default")
    attributes["show_default"] = not isinstance(default, bool) and default not in (None, "", ())
    usual = f"--{one.name.replace('_', '-')}"
    options = [each for each in extra if isinstance(each, Opt)] or [Opt()]
    names = [one.name] if len(options) == 1 else [f"{one.name}_{number}" for number in range(len(options))]
    return [
        click.Option([name, *(each.names or (usual,))], **attributes | each.attributes)
        for name, each in zip(names, options, strict=True)
    ]


def _typed(kind: Any) -> dict[str, Any]:
    """What the type of a parameter says; of a union, its first member does."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return _typed(next(each for each in inner if each is not NoneType))
    if origin is tuple:
        return {"multiple": True, **_typed(inner[0])}
    if kind is bool:
        return {"is_flag": True}
    if kind is datetime:
        return {"type": Time(), "metavar": "2h|TIME"}
    return {"type": click.Choice(inner) if origin is Literal else _TYPES.get(kind, kind)}
