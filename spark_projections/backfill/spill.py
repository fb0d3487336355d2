"""
A directory for what a backfill spills, which lasts no longer than the process.

One that is killed cannot clean up: the next backfill on the machine does, as soon as nobody holds the directory's lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "projections-backfill-"
_LOCK = "_lock"


@contextmanager
def spill_directory() -> Iterator[Path]:
    """Make a directory for the length of the block, and remove those that killed processes have left behind."""
    root = Path(tempfile.gettempdir())
    _remove_abandoned(root)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    try:
        with (directory / "_new").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # It has its name only when it is held: nobody finds it free before.
            (directory / "_new").rename(directory / _LOCK)
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    for directory in root.glob(f"{_PREFIX}*"):
        # In use, or gone meanwhile. What another user has put there is not even opened: that could keep it waiting.
        with suppress(OSError):
            if directory.stat(follow_symlinks=False).st_uid == os.getuid():
                _remove_free(directory)


def _remove_free(directory: Path) -> None:
    with (directory / _LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
