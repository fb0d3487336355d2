"""Names of a package that are imported when they are asked for: others may lack an extra that one of them needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """
    Make the ``__all__``, the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: Its name.
        homes: For each module, the names that it has, with spaces between them; a module below the package begins with
            a dot.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return sorted(modules), find, listed
