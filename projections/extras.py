"""What the core takes from packages that it does not import, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


def registered(group: str, name: str) -> Any:
    """
    Load what another package registers by an entry point.

    Args:
        group: Of entry points, as in pyproject.toml.
        name: Of the entry point.

    Raises:
        NotRegistered: The installation has no such entry point.
        ImportError: It cannot be imported, for instance because an extra is missing.
    """
    for point in entry_points(group=group, name=name):
        return point.load()
    raise NotRegistered(
        f"the installation has no entry point {name!r} of {group!r}: it is of another version than the code. "
        "Install slice-projections again"
    )
