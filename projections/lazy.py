"""Names of a package that are imported when they are asked for: others may lack an extra that one of them needs."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """
    Make the ``__all__``, the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: Its name. The names are those that it imports under ``if TYPE_CHECKING:``.
    """
    module = sys.modules[package]
    homes = {
        alias.name: statement.module
        for block in ast.parse(inspect.getsource(module)).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return sorted(homes), find, lambda: sorted({*vars(module), *homes})
