"""Names of a package that are imported when they are asked for: others may lack an extra that one of them needs."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names() -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """
    Make the ``__all__``, the ``__getattr__`` and the ``__dir__`` of the package that calls it.

    The names are those that it imports under ``if TYPE_CHECKING:``. They are read from its compiled code: the source
    need not be installed.
    """
    caller = sys._getframe(1)  # noqa: SLF001 - as namedtuple does: the package is not complete yet
    package, imported = caller.f_globals["__name__"], caller.f_globals
    homes: dict[str, str] = {}
    home = ""
    for step in dis.get_instructions(caller.f_code):
        if step.opname == "IMPORT_NAME":
            home = step.argval
        elif step.opname == "IMPORT_FROM" and step.argval not in imported:
            homes[step.argval] = home

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return sorted(homes), find, lambda: sorted({*imported, *homes})
