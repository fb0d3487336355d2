"""What the core takes from packages that it does not import, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from journal import ProjectionsError


class MissingExtra(ProjectionsError, ImportError):
    """A package that only an extra installs is missing; the message names the extra."""


@contextmanager
def from_extra(extra: str) -> Iterator[None]:
    """Around imports: say by MissingExtra which extra brings what is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{error.name!r} is not installed; it comes with: pip install 'slice-projections[{extra}]'"
        ) from error


class NotRegistered(ProjectionsError):
    """The installation does not have an entry point of this version of the code; the message says what to do."""


@cache
def registered(group: str, name: str | None = None) -> Sequence[Any]:
    """
    Load what other packages register by entry points.

    Args:
        group: Of entry points, as in pyproject.toml.
        name: Load this one alone; None for all of the group, in the order of their names.

    Raises:
        NotRegistered: The installation has no such entry point.
        ImportError: One cannot be imported, for instance because an extra is missing.
    """
    points = sorted(entry_points(group=group) if name is None else entry_points(group=group, name=name))
    if not points:
        which = f"of {group!r}" if name is None else f"{name!r} of {group!r}"
        raise NotRegistered(
            f"the installation has no entry point {which}: it is of another version than the code. "
            "Install slice-projections again"
        )
    return [point.load() for point in points]
