"""Finding a callable that a command line names: ``module:callable``."""

from __future__ import annotations

import sys
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from journal.import_names import clash_of

__all__ = ["load_callable"]


def load_callable(target: str) -> Any:
    """
    The callable that was named.

    Args:
        target: ``module:callable``. The current directory is searched first.

    Raises:
        click.BadParameter: It is not there, cannot be imported, or cannot be called.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    name, _, path = target.partition(":")
    try:
        found = reduce(getattr, path.split("."), import_module(name))
    except Exception as error:
        clash = f"; {told}" if (told := clash_of(error)) else ""
        raise click.BadParameter(
            f"{target!r} cannot be imported: {type(error).__name__}: {error}{clash}"
        ) from error
    if not callable(found):
        raise click.BadParameter(f"{target!r} cannot be called: it is to take a partition, and keep its rows")
    return found
