"""
Defining projections: a class, its name, and a method for each event it handles.

What a class declares is checked when it is decorated, so that a mistake shows when the program starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from pydantic import BaseModel

from journal import EntityTypes, EventEnvelope, OwnedSession, Session, check_name, event_type_of
from projections.defining.batching import AtLeastOnce, ExactlyOnce, Group
from projections.defining.read_models import SqlReadModel, read_models_of
from projections.defining.signatures import check_annotation, required_parameters
from projections.defining.tables import Changes, Table
from projections.errors import InvalidHandler
from projections.failing import Recovery

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)
M1 = TypeVar("M1", bound=BaseModel)
M2 = TypeVar("M2", bound=BaseModel)
M3 = TypeVar("M3", bound=BaseModel)
M4 = TypeVar("M4", bound=BaseModel)
C = TypeVar("C")

EventHandler = Callable[[S, Session, M, EventEnvelope], Awaitable[None]]
TableHandler = Callable[[S, M, EventEnvelope], Changes]
GroupHandler = Callable[[S, Session, Sequence[tuple[M, EventEnvelope]]], Awaitable[None]]


class Kind(Enum):
    """How a projection's handlers are called."""

    EVENT = "event"
    """``async def name(self, session, event, envelope)``, once for each event."""
    GROUP = "group"
    """``async def name(self, session, events)``, once for a batch of (event, envelope)."""
    TABLE = "table"
    """``def name(self, event, envelope)``, returns changes of rows; the framework writes them."""
    STATEMENT = "statement"
    """No handlers: each :func:`read_model` is a statement, which PostgreSQL runs over a batch."""
    HEADS = "heads"
    """``async def handle(self, session, envelopes)``, once for a batch of all event types, without payloads; of the
    library's own projections."""
    ENVELOPES = "envelopes"
    """As heads, with payloads as they are stored; of the library's own projections."""


_PARAMETERS = {
    Kind.EVENT: "async def {}(self, session, event, envelope)",
    Kind.GROUP: "async def {}(self, session, events)",
    Kind.TABLE: "def {}(self, event, envelope)",
}
_BATCH_SIZES = {Kind.EVENT: 1_000, Kind.TABLE: 5_000, Kind.STATEMENT: 20_000}
_COUNTS = {Kind.EVENT: 4, Kind.GROUP: 3, Kind.TABLE: 3}


class handles(Generic[M]):  # noqa: N801 - used as a decorator
    """
    Mark the method that handles an event.

    Args:
        model: The event's payload model; methods for its event type are found by it.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model

    @overload
    def __call__(self, method: EventHandler[S, M]) -> EventHandler[S, M]: ...
    @overload
    def __call__(self, method: TableHandler[S, M]) -> TableHandler[S, M]: ...
    def __call__(self, method: Any) -> Any:
        """Mark a method; raises InvalidHandler when its signature fits no kind of handler."""
        _mark(method, self._model, grouped=False)
        return method


class handles_group(Generic[M]):  # noqa: N801 - used as a decorator
    """
    Mark the method that handles lists of events.

    Args:
        models: The payload models of the events that go into the list; others are left out. Type checkers tell up to
            four apart.
    """

    # The event of a list is one of its models: mypy would join them to BaseModel without being told.
    @overload
    def __init__(self: handles_group[M1], one: type[M1], /) -> None: ...
    @overload
    def __init__(self: handles_group[M1 | M2], one: type[M1], two: type[M2], /) -> None: ...
    @overload
    def __init__(
        self: handles_group[M1 | M2 | M3], one: type[M1], two: type[M2], three: type[M3], /
    ) -> None: ...
    @overload
    def __init__(
        self: handles_group[M1 | M2 | M3 | M4],
        one: type[M1],
        two: type[M2],
        three: type[M3],
        four: type[M4],
        /,
    ) -> None: ...
    @overload
    def __init__(self: handles_group[Any], *models: type[BaseModel]) -> None: ...
    def __init__(self, *models: type[BaseModel]) -> None:
        self._models = models

    def __call__(self, method: GroupHandler[S, M]) -> GroupHandler[S, M]:
        """Mark a method; raises InvalidHandler when it is not a group handler."""
        for model in self._models:
            _mark(method, model, grouped=True)
        return method


class reacts(Generic[M]):  # noqa: N801 - used as a decorator
    """
    Mark the method that reacts to an event: by appending, publishing, sending a webhook.

    It is called in the transaction of the batch, after the handlers, once for each event: never by a rebuild, and not
    again when a rebuild or a changed offset has events handled again. What it writes with its session commits with the
    batch.

    Args:
        model: The event's payload model.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model

    def __call__(self, method: EventHandler[S, M]) -> EventHandler[S, M]:
        """Mark a method; raises InvalidHandler unless it is ``async def name(self, session, event, envelope)``."""
        name = _checked_name(method, self._model, "reacts")
        if not inspect.iscoroutinefunction(method) or required_parameters(method) != _COUNTS[Kind.EVENT]:
            raise InvalidHandler(f"{name}: write it as {_PARAMETERS[Kind.EVENT].format(method.__name__)}")
        method.__dict__.setdefault("__projection_reacts__", []).append(self._model)
        return method


def _checked_name(method: Any, model: Any, mark: str) -> str:
    name: str = getattr(method, "__qualname__", repr(method))
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise InvalidHandler(
            f"{name}: {model!r} is not a payload model; {mark}() takes a pydantic model class"
        )
    return name


def _mark(method: Any, model: Any, *, grouped: bool) -> None:
    name = _checked_name(method, model, "handles")
    if inspect.isasyncgenfunction(method):
        raise InvalidHandler(
            f"{name} is an asynchronous generator: write it as {_PARAMETERS[Kind.EVENT].format(name)}"
        )
    apart = Kind.EVENT if inspect.iscoroutinefunction(method) else Kind.TABLE
    kind = Kind.GROUP if grouped else apart
    parameters = required_parameters(method)
    if grouped and not inspect.iscoroutinefunction(method):
        raise InvalidHandler(f"{name} is not async: write it as {_PARAMETERS[kind].format(name)}")
    if parameters != _COUNTS[kind]:
        hint = _PARAMETERS[kind].format(method.__name__)
        if kind is Kind.TABLE and parameters == _COUNTS[Kind.EVENT]:
            hint = f"{_PARAMETERS[Kind.EVENT].format(method.__name__)}: it takes a session and is not async"
        raise InvalidHandler(f"{name} has {parameters} parameters: write it as {hint}")
    method.__projection_kind__ = kind
    method.__dict__.setdefault("__projection_handles__", []).append(model)


@dataclass(frozen=True, slots=True)
class Projection:
    """
    A projection as it runs: made by :func:`projection`, found on a class by :func:`projection_of`.

    Args:
        name: Names its offsets: keep it for as long as the read model lives.
        entity_types: The kinds of sources it reads.
        kind: How its handlers are called.
        handlers: By event type, the payload model and the name of the method.
        make: Makes the object whose methods are called: a new one each time a range starts.
    """

    name: str
    entity_types: EntityTypes
    version: int
    kind: Kind
    handlers: Mapping[str, tuple[type[BaseModel], str]]
    make: Callable[[], Any]
    delivery: ExactlyOnce | AtLeastOnce
    recovery: Recovery
    group: Group
    unhandled: Literal["ignore", "fail"]
    batch_size: int
    tables: tuple[Table | str, ...] | None
    reactions: Mapping[str, tuple[type[BaseModel], str]] = field(default_factory=dict)
    """By event type, what is called after the handlers, once."""
    read_models: tuple[SqlReadModel, ...] = ()
    """What is declared in SQL, in place of handlers."""

    def passes_over(self, event_type: str) -> bool:
        """Whether an event without a handler is not an error."""
        return self.unhandled == "ignore" or event_type in self.reactions

    def reads_others(self, stored: EntityTypes) -> str:
        """What to say where its version runs with other entity types than this code reads."""
        return (
            f"version {self.version} reads events of {stored.said}, and this code of {self.entity_types.said}"
        )


def projection(
    name: str,
    *,
    entity_type: str | Collection[str] | EntityTypes,
    version: int = 1,
    delivery: ExactlyOnce | AtLeastOnce | None = None,
    recovery: Recovery | None = None,
    group: Group | None = None,
    unhandled: Literal["ignore", "fail"] = "ignore",
    batch_size: int | None = None,
    tables: Iterable[Table | str] | None = None,
) -> Callable[[type[C]], type[C]]:
    """
    Make a class a projection.

    A new object is made, without arguments, each time a range of slices starts; an ``async def start(self)`` and
    ``async def stop(self)`` are called around its work when they are there.

    Args:
        name: Names its offsets, so it must not change while the read model lives. 1 to 255 characters; ``matching`` is
            taken by what matches subscriptions.
        entity_type: The kind of sources whose events it handles; several, ``("plane", "airport")``, or every one,
            ``ALL_TYPES``, in the order of their times. Each source is of one kind. Raise ``version`` to change it.
        version: Raise it when changed code is to build the read model again: workers of the new version wait, those of
            the old one go on, until a rebuild by the new one takes over.
        delivery: Exactly once (the default), or :class:`AtLeastOnce` for effects outside the database.
        recovery: What to do when a handler fails; by default three retries, then the source is parked.
        group: Size and waiting time of the lists that a group handler gets.
        unhandled: Whether event types without a handler are passed over, or are an error that names them.
        batch_size: Events read, handled and committed together; two such pages are in memory. By default 1,000, for
            table handlers 5,000, for read models in SQL 20,000: the more of a source are in a batch, the fewer offsets
            are stored. Group handlers have the size of their lists instead.
        tables: The tables that it writes, for rebuilds: a :class:`Table`, or its name. Table handlers need not say:
            those that their code names are found.

    Raises:
        InvalidEvent: ``entity_type`` names none, one twice, or one that cannot be.
        InvalidHandler: No handler, two for one event, handlers of different kinds, or a wrong signature.
    """
    _check_name(name)
    entity_types = EntityTypes.of(entity_type, f"entity_type of projection {name!r}")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
    if version < 1:
        raise ValueError(f"version must be 1 or more, not {version}")
    if isinstance(tables, str):
        raise TypeError(f"tables must be several, such as ({tables!r},)")
    written = None if tables is None else tuple(tables)

    def define(cls: type[C]) -> type[C]:
        kind, handlers, read_models = _collect(cls)
        chosen = delivery or ExactlyOnce()
        reactions = _marked(cls, "__projection_reacts__", "react to")
        if kind is Kind.STATEMENT:
            _check_alone(cls, reactions, written, unhandled)
        _check_delivery(cls, kind, chosen)
        if reactions and isinstance(chosen, AtLeastOnce):
            raise InvalidHandler(
                f"{cls.__qualname__}: reactions are part of the transaction of a batch; drop AtLeastOnce, or write "
                "the effects into handlers"
            )
        if group is not None and kind is not Kind.GROUP:
            raise InvalidHandler(f"{cls.__qualname__}: group= is for handlers marked by handles_group()")
        if batch_size is not None and kind is Kind.GROUP:
            raise InvalidHandler(
                f"{cls.__qualname__}: a list has the size of group=Group(size=…); drop batch_size"
            )
        size = (group or Group()).size if kind is Kind.GROUP else batch_size or _BATCH_SIZES[kind]
        cls.__projection__ = Projection(  # type: ignore[attr-defined]
            name, entity_types, version, kind, handlers, cls, chosen, recovery or Recovery.retry_and_park(),
            group or Group(), unhandled, size, tuple(one.table for one in read_models) or written, reactions,
            read_models,
        )  # fmt: skip
        return cls

    return define


def _marked(cls: type[Any], mark: str, what: str) -> dict[str, tuple[type[BaseModel], str]]:
    """By event type, the methods that have a mark, which holds their models."""
    found: dict[str, tuple[type[BaseModel], str]] = {}
    for attribute in dir(cls):
        method = inspect.getattr_static(cls, attribute)
        for model in getattr(method, mark, ()):
            check_annotation(method, model, what)
            event_type = event_type_of(model).name
            if event_type in found:
                raise InvalidHandler(
                    f"{cls.__qualname__}: both {found[event_type][1]} and {attribute} {what} event type {event_type!r}"
                )
            found[event_type] = (model, attribute)
    return found


def _collect(
    cls: type[Any],
) -> tuple[Kind, dict[str, tuple[type[BaseModel], str]], tuple[SqlReadModel, ...]]:
    handlers = _marked(cls, "__projection_handles__", "handle")
    for hook in ("start", "stop"):
        if (found := getattr(cls, hook, None)) is not None and not inspect.iscoroutinefunction(found):
            raise InvalidHandler(
                f"{cls.__qualname__}.{hook} is called around its work: write it as async def {hook}(self)"
            )
    if read_models := read_models_of(cls):
        if handlers:
            raise InvalidHandler(
                f"{cls.__qualname__} has handlers and read models in SQL: make them two projections"
            )
        return Kind.STATEMENT, {}, read_models
    if not handlers:
        raise InvalidHandler(
            f"{cls.__qualname__} handles no event: mark a method with @handles(Model), or declare a read_model()"
        )
    return _kind_of(cls, handlers), handlers, ()


def _check_delivery(cls: type[Any], kind: Kind, delivery: ExactlyOnce | AtLeastOnce) -> None:
    if isinstance(delivery, ExactlyOnce):
        return
    if kind in {Kind.TABLE, Kind.STATEMENT}:
        what = "table handlers" if kind is Kind.TABLE else "read models in SQL"
        raise InvalidHandler(
            f"{cls.__qualname__}: {what} write to the database, exactly once; drop AtLeastOnce"
        )
    if kind is Kind.GROUP and delivery.concurrency > 1:
        raise InvalidHandler(f"{cls.__qualname__}: lists are handled one after the other; drop concurrency")


def _check_alone(cls: type[Any], reactions: object, tables: object, unhandled: str) -> None:
    """What handlers say has no meaning for read models in SQL."""
    if reactions or tables is not None or unhandled == "fail":
        raise InvalidHandler(
            f"{cls.__qualname__}: read models in SQL go without tables=, unhandled='fail' and methods that react: "
            "write those into a projection of their own"
        )


def _kind_of(cls: type[Any], handlers: Mapping[str, tuple[type[BaseModel], str]]) -> Kind:
    kinds: dict[Kind, str] = {
        inspect.getattr_static(cls, name).__projection_kind__: name for _, name in handlers.values()
    }
    if len(kinds) > 1:
        found = ", ".join(f"{attribute} ({kind.value})" for kind, attribute in kinds.items())
        raise InvalidHandler(
            f"{cls.__qualname__} mixes kinds of handlers: {found}. Handlers of one projection are all "
            "async with a session, all for groups, or all returning changes of tables"
        )
    return next(iter(kinds))


def _check_name(name: str) -> None:
    check_name(name, "the projection's name")
    if name == "matching":
        raise ValueError(
            "the projection's name must not be 'matching', which is that of what matches subscriptions"
        )


def projection_of(definition: Any) -> Projection:
    """
    What :func:`projection` declared of a class, or of the class of an object; InvalidHandler: it was not decorated.

    An object is used as it is for every range; of a class, each range gets its own.
    """
    declared = getattr(definition, "__projection__", None)
    if not isinstance(declared, Projection):
        raise InvalidHandler(
            f"{definition!r} is not a projection: decorate its class with @projection(name, entity_type=…)"
        )
    if isinstance(definition, type):
        return declared
    return replace(declared, make=lambda: definition)


class Discovery(Protocol):
    """A service that says which projections there are, also those that are added later while a process runs."""

    async def tend(self, session: OwnedSession) -> Sequence[Projection]:
        """Do what is due, called every second; returns the projections that are to run here. New ones are begun."""
