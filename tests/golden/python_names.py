"""
The public names of Python: signatures of functions, and of classes the bases, fields, methods and properties.

Annotations are as the source has them, so that every version of Python gives the same text.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from functools import cached_property
from importlib import import_module
from textwrap import indent
from typing import Any, ForwardRef, get_args, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tests.golden.recordings import Files, Fresh, lines

PACKAGES = (
    "journal",
    "journal.foreign",
    "journal.partitions",
    "projections",
    "projections.testing",
    "projections.subscriptions",
    "projections.webhooks",
    "projections.webhooks.api",
    "projections.webhooks.page",
    "projections.webhooks.log",
    "projections.monitoring",
    "spark_projections",
)
"""Those with public names; all others may change without notice: docs/versioning.md."""
_ROOTS = {"journal", "offsets", "projections", "spark_projections"}
_NOTHING: Any = object()
_WIDTH = 110
_SHORT = 100
"""Characters of a default."""


def names_of(package: str) -> dict[str, Any]:
    """The public names of a package."""
    module = import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def public_names(_: Fresh) -> Files:
    """A file for each package, and one for values that public calls return whose classes have no public name."""
    homes: dict[str, str] = {}
    files = {}
    for package in PACKAGES:
        found: list[str] = []
        for name, value in sorted(names_of(package).items()):
            home = homes.setdefault(name, package)
            found += [f"{name} is that of {home}"] if home != package else _described(name, value)
        files[f"python/{package}.txt"] = lines(found)
    named = {id(value): value for package in PACKAGES for value in names_of(package).values()}
    results = sorted(_results(named), key=lambda one: (one.__name__, one.__module__))
    files["python/results.txt"] = lines(
        [line for one in results for line in _class(one.__name__, one, constructor=False)]
    )
    return files


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isfunction(value):
        yield _function(name, value)
    else:
        yield f"{name} = {value!r}"


def _class(name: str, cls: type[Any], *, constructor: bool = True) -> Iterator[str]:
    bases = ", ".join(
        one.__name__ for one in cls.__bases__ if one is not object and one.__name__ != "Generic"
    )
    yield f"class {name}({bases})" if bases else f"class {name}"
    for text in (*_fields(cls), *_members(cls, constructor=constructor)):
        yield indent(text, "    ")


def _fields(cls: type[Any]) -> Iterator[str]:
    """The fields of a dataclass, a named tuple or a model, and the members of an enumeration, in their order."""
    annotations: dict[str, Any] = {}
    for one in reversed(_own(cls)):
        annotations |= vars(one).get("__annotations__", {})
    for name, default in _defaults(cls, annotations):
        if not name.startswith("_"):
            text = f"{name}: {_annotation(annotations[name])}" if name in annotations else name
            yield text if default is _NOTHING else f"{text} = {_value(default)}"


def _defaults(cls: type[Any], annotations: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if issubclass(cls, BaseModel):
        for name, field in cls.model_fields.items():
            default = field.get_default(call_default_factory=True)
            yield name, _NOTHING if default is PydanticUndefined else default
    elif dataclasses.is_dataclass(cls):
        for part in dataclasses.fields(cls):
            made = part.default_factory
            default = part.default if made is dataclasses.MISSING else made()
            yield part.name, _NOTHING if default is dataclasses.MISSING else default
    elif issubclass(cls, Enum):
        yield from ((one.name, one.value) for one in cls)
    elif issubclass(cls, tuple):
        yield from ((name, vars(cls).get("_field_defaults", {}).get(name, _NOTHING)) for name in annotations)
    else:
        yield from ((name, vars(cls).get(name, _NOTHING)) for name in annotations)


def _members(cls: type[Any], *, constructor: bool) -> Iterator[str]:
    """Methods and properties of a class and of those of ours that it is made from, by name."""
    found: dict[str, Any] = {}
    for one in reversed(_own(cls)):
        found |= vars(one)
    of_fields = dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel | tuple)
    protocol = getattr(cls, "_is_protocol", False)
    for name, member in sorted(found.items()):
        constructs = constructor and name == "__init__" and not (of_fields or protocol)
        if (constructs or not name.startswith("_")) and (text := _member(name, member)):
            yield text


def _member(name: str, member: Any) -> str | None:
    if isinstance(member, classmethod | staticmethod):
        return f"{type(member).__name__} {_function(name, member.__func__)}"
    if isinstance(member, property | cached_property):
        get: Any = member.fget if isinstance(member, property) else member.func
        return f"property {name}: {_annotation(inspect.signature(get).return_annotation)}"
    return _function(name, member) if inspect.isfunction(member) else None


def _function(name: str, function: Any) -> str:
    """A signature: on one line, or with a line for each parameter."""
    made = inspect.signature(function)
    parts: list[str] = []
    kinds = [one.kind for one in made.parameters.values()]
    for number, one in enumerate(made.parameters.values()):
        if one.kind is one.KEYWORD_ONLY and not {one.KEYWORD_ONLY, one.VAR_POSITIONAL} & {*kinds[:number]}:
            parts.append("*")
        parts.append(_parameter(one))
        if one.kind is one.POSITIONAL_ONLY and kinds[number + 1 : number + 2] != [one.POSITIONAL_ONLY]:
            parts.append("/")
    result = _annotation(made.return_annotation)
    word = "async def" if inspect.iscoroutinefunction(function) else "def"
    end = f") -> {result}" if result else ")"
    line = f"{word} {name}({', '.join(parts)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{word} {name}(", *(f"    {part}," for part in parts), end])


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    annotation = _annotation(one.annotation)
    text = f"{stars}{one.name}" + (f": {annotation}" if annotation else "")
    return text if one.default is one.empty else f"{text} = {_value(one.default)}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _value(value: Any) -> str:
    """A default: short where it is one of ours that is as its class makes it, or that has a long text."""
    if type(value).__module__.partition(".")[0] in _ROOTS and len(repr(value)) > _SHORT:
        with suppress(TypeError):
            return f"{type(value).__name__}({'' if value == type(value)() else '…'})"
        return f"{type(value).__name__}(…)"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    if inspect.isclass(value) or inspect.isroutine(value):
        return str(value.__qualname__)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _own(cls: type[Any]) -> list[type[Any]]:
    return [one for one in cls.__mro__ if one.__module__.partition(".")[0] in _ROOTS]


def _results(named: dict[int, Any]) -> Iterator[type[Any]]:
    """Values of classes of ours that public calls return, and those that these return or have as fields."""
    seen = set(named)
    todo = [*named.values()]
    while todo:
        for one in _mentioned(todo.pop()):
            if id(one) not in seen and one.__module__.partition(".")[0] in _ROOTS and _is_value(one):
                seen.add(id(one))
                todo.append(one)
                yield one


def _is_value(cls: type[Any]) -> bool:
    return dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel | Enum | list | tuple)


def _mentioned(value: Any) -> Iterator[type[Any]]:
    members = [value]
    if inspect.isclass(value):
        members = [member for name, member in inspect.getmembers_static(value) if not name.startswith("_")]
        with suppress(NameError):  # of a name that only a type checker imports
            hints = {name: hint for name, hint in get_type_hints(value).items() if not name.startswith("_")}
            yield from (one for hint in hints.values() for one in _classes(hint))
    for member in members:
        get = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(get):
            with suppress(NameError):
                yield from _classes(get_type_hints(get).get("return"))


def _classes(hint: Any) -> Iterator[type[Any]]:
    if inspect.isclass(hint) and not get_args(hint):
        yield hint
    for one in get_args(hint):
        yield from _classes(one)
