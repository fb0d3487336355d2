"""What is said where a package of an extra is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
