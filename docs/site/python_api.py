"""The reference of the Python API: a page for each package, with what its ``__all__`` names."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = {
    "projections": "Events, projections, and running them: what an application imports.",
    "projections.testing": "Testing handlers and projections.",
    "projections.subscriptions": "Subscriptions, consumers, publishers, listeners and server-sent events.",
    "projections.webhooks": "Endpoints, messages and deliveries over HTTP.",
    "projections.webhooks.api": "The HTTP API of webhooks, as an ASGI application.",
    "projections.webhooks.page": "The page on which tenants look after their webhooks.",
    "projections.webhooks.log": "The log of webhook attempts.",
    "projections.monitoring": "Lag, metrics, probes and traces.",
    "journal": "The journal alone, for applications that only write or read events.",
    "journal.partitions": "Time partitions of the journal.",
    "journal.foreign": "Reading journals of other systems in place.",
    "spark_projections": "Rebuilds, archives and DataFrames, on Spark or in local processes.",
}
"""Public packages. A name that several of them have is described at the first."""


def package_page(package: str) -> str:
    """Make the page of a package: its names with their docstrings, and links to those described elsewhere."""
    homes = documented_at()
    names = sorted(import_module(package).__all__, key=lambda name: (not name[0].islower(), name.lower()))
    own = [name for name in names if homes[name] == package]
    others = [name for name in names if homes[name] != package]
    lines = [f"# `{package}`", "", PACKAGES[package], ""]
    if others:
        links = ", ".join(f"[`{name}`][{homes[name]}.{name}]" for name in others)
        lines += [f"Also importable from here, and described elsewhere: {links}.", ""]
    for name in own:
        lines += [f"::: {package}.{name}", ""]
    return "\n".join(lines)


@cache
def documented_at() -> dict[str, str]:
    """Tell by public name the package whose page describes it."""
    homes: dict[str, str] = {}
    for package in PACKAGES:
        for name in import_module(package).__all__:
            homes.setdefault(name, package)
    return homes


def undocumented_names() -> Iterator[str]:
    """Find the public names, and the methods of public classes, that say nothing."""
    for name, package in documented_at().items():
        value = getattr(import_module(package), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield from undocumented_in(f"{package}.{name}", value)


def undocumented_in(name: str, value: Any) -> Iterator[str]:
    """Name a function or class that says nothing, and the methods of the class that say nothing."""
    if not inspect.getdoc(value):
        yield name
    if inspect.isclass(value):
        for inner, member in vars(value).items():
            if inspect.isfunction(member) and inner[0] != "_" and not inspect.getdoc(getattr(value, inner)):
                yield f"{name}.{inner}"
