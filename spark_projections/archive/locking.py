"""One change of an archive at a time, and names that last."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_projections.archive.files import ArchiveError

_LOCK = "_lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Keep others from changing an archive for the length of the block; the kernel ends that with the process.

    ArchiveError: somebody else is changing it, or the directory cannot be written, or locked.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _LOCK).open("a+")
    except OSError as error:
        raise ArchiveError(f"{directory} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ArchiveError(
                f"another export into {directory} is at work, process {file.read() or 'unknown'}: "
                "wait for its end, or choose another directory"
            ) from None
        except OSError as error:
            raise ArchiveError(
                f"{directory} cannot be locked ({error.strerror}), so two exports could write to it at once: export to "
                "a file system with locks, and copy the archive from there"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def busy(directory: Path) -> bool:
    """Whether somebody is known to be changing an archive; asks for no right to write there."""
    try:
        with (directory / _LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def sync_directory(directory: Path) -> None:
    """Make the names of files in a directory last."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
