"""The reference of settings: every field with its default, its bounds and its meaning."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import logging
import re
from datetime import timedelta
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "projections.ConnectionSettings": "How a process connects to PostgreSQL.",
    "projections.RunSettings": "How projections run in a process: `run(…, settings=…)`.",
    "projections.subscriptions.ConsumerSettings": "How a consumer reads for its group.",
    "projections.subscriptions.PublisherSettings": "How a publisher appends.",
    "projections.subscriptions.ListenerSettings": "How a listener follows a group.",
    "projections.subscriptions.StreamSettings": "How server-sent events are sent.",
    "projections.webhooks.DeliverySettings": "How a process delivers webhooks.",
    "projections.webhooks.EndpointSettings": "What a tenant sets for an endpoint.",
    "projections.webhooks.RetryPolicy": "When a failed delivery is tried again.",
    "projections.webhooks.AddressRules": "Where webhooks may go.",
    "projections.webhooks.api.ApiSettings": "Limits of the HTTP API of webhooks.",
    "projections.webhooks.page.PageTheme": "How the page for tenants looks.",
    "spark_projections.RebuildOptions": "What a rebuild does, and how long it may wait.",
}
_PACKAGES = {"journal", "offsets", "projections", "spark_projections"}
_ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_log = logging.getLogger("mkdocs.hooks.site")
_UNITS = {"day": 86_400, "hour": 3600, "minute": 60, "second": 1}

_INTRODUCTION = """# Settings

Every setting of the library, generated from the code.
Pass an object of the class to the call that takes it; commands have an option for each setting that operators change
(see [commands](commands.md)).
[Environment variables](environment.md) are listed separately.
"""


def settings_page() -> str:
    """Describe the fields of all classes of settings."""
    lines = [_INTRODUCTION]
    for path, purpose in SETTINGS.items():
        package, _, name = path.rpartition(".")
        lines += [f"## `{name}`", "", f"{purpose} From [`{package}`][{path}].", ""]
        lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{field}` | {default} | {text} |" for field, default, text in _fields(package, name)]
        lines.append("")
    return "\n".join(lines)


def _fields(package: str, name: str) -> Iterator[tuple[str, str, str]]:
    cls = getattr(import_module(package), name)
    meanings = _meanings(cls)
    for field, default, bounds in _declared(cls):
        if field not in meanings:
            _log.warning("%s.%s.%s has no description: write one below it, or in Args", package, name, field)
        text = _cell(meanings.get(field, ""))
        yield field, default, f"{text} {bounds}".rstrip()


def _declared(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Tell of each field its default and its bounds."""
    if issubclass(cls, BaseModel):
        for name, field in cls.model_fields.items():
            default = field.get_default(call_default_factory=True)
            yield name, _value(default, required=default is PydanticUndefined), _bounds(field.metadata)
    else:
        for part in dataclasses.fields(cls):
            default = part.default if part.default_factory is dataclasses.MISSING else part.default_factory()
            yield part.name, _value(default, required=default is dataclasses.MISSING), ""


def _meanings(cls: type) -> dict[str, str]:
    """Read what is written of fields: below each, or as arguments in the docstring of the class."""
    found: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if base.__module__.partition(".")[0] in _PACKAGES]):
        body = ast.parse(inspect.getsource(base)).body[0]
        assert isinstance(body, ast.ClassDef)  # noqa: S101 - what the source of a class is
        found |= {
            field.target.id: text.value.value
            for field, text in pairwise(body.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        }
        _, _, arguments = (inspect.getdoc(base) or "").partition("Args:\n")
        found |= dict(_ARGUMENT.findall(arguments.partition("\n\n")[0]))
    return found


def _value(default: Any, *, required: bool) -> str:
    if required:
        return "required"
    if isinstance(default, timedelta):
        return _duration(default)
    if isinstance(default, int) and not isinstance(default, bool):
        return f"{default:,}"
    if default is None or isinstance(default, bool | str | float | tuple | frozenset | dict):
        return f"`{default!r}`".replace("|", "\\|")
    return f"`{default!r}`".replace("datetime.", "").replace("|", "\\|")


def _duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    if 0 < seconds < 1:
        return f"{seconds * 1000:g} ms"
    unit, size = next(((u, s) for u, s in _UNITS.items() if seconds and seconds % s == 0), ("second", 1))
    return f"{seconds / size:g} {unit}{'' if seconds == size else 's'}"


def _bounds(metadata: list[Any]) -> str:
    told = []
    for bound in metadata:
        for key, word in _BOUNDS.items():
            if (limit := getattr(bound, key, None)) is not None:
                told.append(f"{word} {_value(limit, required=False)}")
    return f"({', '.join(told)})" if told else ""


def _cell(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return " ".join(text.split()).replace("|", "\\|")
