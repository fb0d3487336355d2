"""Finding what a command line names: the projections of ``module`` or ``module:object``, or any object of a module."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from journal import ProjectionsError
from journal.import_names import clash_of
from journal.suggestions import did_you_mean
from projections.defining import projection_of
from projections.errors import InvalidHandler


class BrokenModule(ProjectionsError):
    """A module that was named raises when it is imported."""


def load_projections(targets: Iterable[str], *, event_types: bool = False) -> list[Any]:
    """
    The decorated classes (or objects of them) that were named, each once.

    Args:
        targets: ``module:object``, or ``module`` for all projections in it. The current directory is searched first.
        event_types: Whether a module may hold event types alone.

    Raises:
        click.BadParameter: A module or object is not there, or is not a projection.
        BrokenModule: A module raises when it is imported.
        InvalidHandler: A projection in it is not declared as it must be.
    """
    _search_here()
    found: dict[int, Any] = {}
    for target in targets:
        found.update((id(definition), definition) for definition in _load(target, event_types=event_types))
    return list(found.values())


def load_callable(target: str) -> Any:
    """The callable of ``module:callable``, with the current directory searched first; else click.BadParameter."""
    found = load_object(target)
    if not callable(found):
        raise click.BadParameter(f"{target!r} cannot be called: it is to take a partition, and keep its rows")
    return found


def load_object(target: str) -> Any:
    """The object of ``module:object``, with the current directory searched first; else click.BadParameter."""
    _search_here()
    name, _, path = target.partition(":")
    try:
        return reduce(getattr, path.split("."), import_module(name))
    except Exception as error:
        clash = f"; {told}" if (told := clash_of(error)) else ""
        raise click.BadParameter(
            f"{target!r} cannot be imported: {type(error).__name__}: {error}{clash}"
        ) from error


def _search_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _load(target: str, *, event_types: bool) -> list[Any]:
    module_name, colon, path = target.partition(":")
    if not module_name or (colon and not path):
        raise click.BadParameter(f"{target!r} is not of the form module:object or module")
    module = _import(module_name)
    if not colon:
        if not (projections := _projections_in(module)) and not (event_types and _has_event_types(module)):
            raise click.BadParameter(f"module {module_name!r} holds no projection")
        return list(projections.values())
    try:
        definition = reduce(getattr, path.split("."), module)
    except AttributeError:
        raise click.BadParameter(
            f"module {module_name!r} has no {path!r}; {_known(module)}{did_you_mean(path, _projections_in(module))}"
        ) from None
    try:
        projection_of(definition)
    except InvalidHandler:
        raise click.BadParameter(
            f"{target!r} is not a projection: decorate the class with @projection(name, entity_type=…); "
            f"{_known(module)}"
        ) from None
    return [definition]


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}.") and not clash_of(error):
            raise click.BadParameter(
                f"there is no module {error.name!r} in {Path.cwd()}, nor among the installed packages"
            ) from None
        raise BrokenModule(_broken(name, error)) from error
    except ProjectionsError:
        raise
    except (TypeError, ValueError) as error:
        if name.startswith("."):
            raise click.BadParameter(f"{name!r} is a relative name: write the whole one") from None
        raise BrokenModule(_broken(name, error)) from error
    except Exception as error:
        raise BrokenModule(_broken(name, error)) from error


def _broken(name: str, error: Exception) -> str:
    where = ""
    if not isinstance(error, SyntaxError) and (frames := traceback.extract_tb(error.__traceback__)):
        where = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    clash = f"; {told}" if (told := clash_of(error)) else ""
    return f"module {name!r} cannot be imported: {type(error).__name__}: {error}{where}{clash}"


def _projections_in(module: ModuleType) -> dict[str, Any]:
    """Decorated classes, and objects that are projections by themselves, by their names."""
    return {
        name: value
        for name, value in vars(module).items()
        if "__projection__" in getattr(value, "__dict__", ())
    }


def _has_event_types(module: ModuleType) -> bool:
    return any("__event_type__" in getattr(value, "__dict__", ()) for value in vars(module).values())


def _known(module: ModuleType) -> str:
    names = ", ".join(_projections_in(module)) or "none"
    return f"projections in {module.__name__!r}: {names}"
