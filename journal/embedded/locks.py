"""File locks that the kernel releases when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def exclusive(path: Path, make_directory: Callable[[], None]) -> Iterator[None]:
    """
    Hold the lock alone; waits for it.

    Args:
        path: The lock's file, made when missing.
        make_directory: Makes its directory; called again when somebody removed that while we waited.
    """
    descriptor = None
    while descriptor is None:
        make_directory()
        with suppress(FileNotFoundError):
            descriptor = _open_locked(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _open_locked(path: Path) -> int | None:
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # While we waited, the file may have been removed with its directory: that lock guards nothing.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


class UseLock:
    """
    A count of the processes that use something, kept by the kernel: a shared lock for each.

    Another lock must serialise taking and leaving, for the step from shared to exclusive is not atomic.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object counts as a user."""
        return self._descriptor is not None

    def take(self) -> None:
        """Count as a user. Taking twice counts once."""
        if self._descriptor is None:
            descriptor = os.open(self._path, _FLAGS, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._descriptor = descriptor

    def leave(self) -> bool:
        """Count no more; returns whether nobody else does."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)
