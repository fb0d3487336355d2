"""Event types: the name and version under which a pydantic model is stored, and older versions lifted to the newest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from journal.errors import InvalidPayload
from journal.events import LIBRARY_TYPES
from journal.exact_numbers import decimal_keys, has_decimals, parsed, written
from journal.naive_times import NaiveTimes

Model = TypeVar("Model", bound=BaseModel)
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class EventType(NamedTuple):
    """The name and version under which a model's events are stored, and how older versions become it."""

    name: str
    version: int
    upcast: Mapping[int, Upcaster]
    naive_times: NaiveTimes = "refuse"


_declared: dict[str, dict[str, type[BaseModel]]] = {}
"""By name of the event type and by module, the model of the newest version that :func:`event_type` has declared."""


def event_type(
    name: str | None = None,
    *,
    version: int = 1,
    upcast: Mapping[int, Upcaster] | None = None,
    naive_times: NaiveTimes = "refuse",
) -> Callable[[type[Model]], type[Model]]:
    """
    Say under which name and version events of a model are stored.

    Without this decorator the name is the class's and the version is 1.

    Whatever reads an event of that name converts its payload to this version. Where a module declares several models
    of one name, it is the one of the newest version, and of those of one version the last. Where several modules do,
    as for sources of different types, nobody can say which of them an event is of: its payload stays as it is stored,
    and handlers and :func:`journal.decode` convert it, which have a model.

    Args:
        name: The stored name; by default the class's.
        version: Raise it when the payload's shape changes, and keep ``upcast`` functions for the old ones.
        upcast: For each older version, a function from its payload to the payload of the next version.
        naive_times: What a datetime without a time zone is, in a field ``datetime``: ``refuse`` refuses the event, to
            append and to read; ``utc`` takes it for one in UTC. A field ``NaiveDatetime`` has none, and needs neither.

    Raises:
        ValueError: A version is below 1, an older version has no function, or ``naive_times`` is another word.
    """
    if naive_times not in get_args(NaiveTimes):
        raise ValueError(f"naive_times must be 'refuse' or 'utc', not {naive_times!r}")
    steps = dict(upcast or {})
    if not 1 <= version <= 32767:  # noqa: PLR2004 - a smallint column
        raise ValueError(f"version must be 1 to 32767, not {version}")
    if missing := sorted(set(range(1, version)) - set(steps)):
        raise ValueError(
            f"version {version} needs an upcast function from version {missing[0]}: upcast={{…}}"
        )

    def register(model: type[Model]) -> type[Model]:
        declared = EventType(name or model.__name__, version, steps, naive_times)
        model.__event_type__ = declared  # type: ignore[attr-defined]
        known = _declared.setdefault(declared.name, {}).setdefault(model.__module__, model)
        if event_type_of(known).version <= version:
            _declared[declared.name][model.__module__] = model
        return model

    return register


def declare(model: type[BaseModel]) -> None:
    """Declare a model that was made in another process by :func:`event_type`, as classes are that were pickled."""
    if "__event_type__" in model.__dict__:
        declared = event_type_of(model)
        known = _declared.setdefault(declared.name, {}).setdefault(model.__module__, model)
        if event_type_of(known).version < declared.version:
            _declared[declared.name][model.__module__] = model


@lru_cache(maxsize=1024)
def event_type_of(model: type[BaseModel]) -> EventType:
    """The name and version of a model's events."""
    declared = model.__dict__.get("__event_type__")  # not inherited: a subclass is another event
    return declared if isinstance(declared, EventType) else EventType(model.__name__, 1, {})


def declared_models() -> dict[str, type[BaseModel]]:
    """By the names of event types, the models of versions after the first that this program declares."""
    models = ((name, _only(name)) for name in _declared)
    return {name: model for name, model in models if model is not None and event_type_of(model).version > 1}


def declared_model(entity_type: str, name: str) -> type[BaseModel] | None:
    """
    The model that this program declares for an event type; None: there is none, or several.

    Args:
        entity_type: That of the event. The types of messages are topics, which have no versions, and are stored as 1.
        name: The name of the event type.
    """
    model = _only(name)
    if model is not None and entity_type in LIBRARY_TYPES and event_type_of(model).version > 1:
        return None
    return model


def _only(name: str) -> type[BaseModel] | None:
    """The model of an event type, if one module alone declares it."""
    found = _declared.get(name, {})
    return next(iter(found.values())) if len(found) == 1 else None


def upcast_json(model: type[BaseModel], version: int, payload: str, source_id: str, seq_nr: int) -> str:
    """
    The JSON of an older version as the model's version has it.

    Args:
        model: The payload model.
        version: That of the event, below the model's.
        payload: Its JSON.
        source_id: Of the event, for errors.
        seq_nr: Of the event, for errors.

    Raises:
        InvalidPayload: An ``upcast`` function of the model failed.
    """
    current = event_type_of(model)
    what = f"event {current.name!r} of source {source_id!r}, seq_nr {seq_nr}"
    return _upcast(model, version, payload, what).decode()


def _upcast(model: type[BaseModel], version: int, payload: str | bytes, what: str) -> bytes:
    current, exact = event_type_of(model), has_decimals(model)
    value = parsed(payload) if exact else from_json(payload)
    for step in range(version, current.version):
        try:
            value = current.upcast[step](value)
        except Exception as error:
            raise InvalidPayload(f"{what}: upcast from version {step} failed: {error!r}") from error
    try:
        text = written(value, decimal_keys(model)) if exact else to_json(value)
        if b"NaN" in text or b"Infinity" in text:
            from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:  # pydantic's are ValueErrors
        raise InvalidPayload(f"{what}: the upcast payload is not JSON: {error}") from error
    return text
