"""
The directories of an embedded server, and who may enter them.

root/              the caller's own; when root runs the server as another user, that one may pass through
  use.lock         held (shared) by every process that uses the server
  start.lock       held (exclusive) while somebody starts or stops it
  data/            the cluster, 0700
  socket/          the socket, 0700; trust is by who can enter here
  socket.path      where the socket is instead, when this path is too long for one
  server.log
  install-18.6/    a copy of the programs, when the server's user cannot reach the originals
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from journal.embedded.account import Account
from journal.embedded.binaries import Binaries
from journal.errors import EmbeddedServerError

HOME_VARIABLE = "PROJECTIONS_HOME"
"""Environment variable: the directory below which the embedded server keeps its data."""

SOCKET_NAME = ".s.PGSQL.5432"
_SOCKET_PATH_LIMIT = 103  # bytes in sockaddr_un.sun_path: macOS 103, Linux 107
_PLAIN = re.compile(r"[\w./+@~-]+", re.ASCII)  # needs no quoting in postgresql.conf, in a URL or in libpq


def default_root(major: int) -> Path:
    """
    Where the server of this user keeps its data, one directory for each major version.

    Raises:
        EmbeddedServerError: There is no home directory.
    """
    return _home() / f"postgres-{major}"


def majors_with_data() -> set[int]:
    """The major versions that have made data of this user."""
    roots = (file.parents[1] for file in _home().glob("postgres-*/data/PG_VERSION"))
    return {int(name) for root in roots if (name := root.name.removeprefix("postgres-")).isdecimal()}


def _home() -> Path:
    if chosen := os.environ.get(HOME_VARIABLE):
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:  # root's own home is closed to the user that the server runs as
        return Path("/var/lib/slice-projections")
    return _user_data() / "slice-projections"


def _user_data() -> Path:
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support"
        named = Path(os.environ.get("XDG_DATA_HOME", ""))
        return named if named.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise EmbeddedServerError(
            f"no home directory: set {HOME_VARIABLE} to a directory of yours"
        ) from error


def make_root(root: Path) -> None:
    """
    Make the root directory, for us alone.

    Raises:
        EmbeddedServerError: It cannot be made, or belongs to somebody else.
    """
    try:
        _make_parents(root.parent)
        root.mkdir(mode=0o700, exist_ok=True)
        found = root.lstat()
    except OSError as error:
        raise EmbeddedServerError(
            f"cannot make {root} ({error.strerror}): set {HOME_VARIABLE} to a directory that you can write"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise EmbeddedServerError(f"{root} is not a directory of yours: set {HOME_VARIABLE} to another place")


def _make_parents(directory: Path) -> None:
    """As ``mkdir -p``; what root makes, others may pass through, whatever the umask says."""
    if directory.exists():
        return
    _make_parents(directory.parent)
    directory.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        directory.chmod(0o711)


def own(directory: Path, account: Account) -> Path:
    """Give a directory to the server's user, closed to all others."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    if account.is_other:
        os.chown(directory, account.uid, account.gid)
    return directory


def open_root(root: Path, account: Account) -> None:
    """
    Let the server's user pass through the root directory.

    Raises:
        EmbeddedServerError: A directory above it stops that user; the message names it.
    """
    if account.is_other:
        os.chown(root, -1, account.gid)
        root.chmod(0o710)
    if account.can_enter(root):
        return
    blocking = next(place for place in (*reversed(root.parents), root) if not account.can_enter(place))
    raise EmbeddedServerError(
        f"the server runs as {account.name}, who cannot enter {blocking}: "
        f"set {HOME_VARIABLE} to a directory that {account.name} can reach"
    )


def reachable_binaries(binaries: Binaries, root: Path, account: Account) -> Binaries:
    """
    Programs that the server's user can run: the given ones, or a copy of them below the root.

    What root installed below its own home is closed to that user, and opening it is not ours to do.

    Raises:
        EmbeddedServerError: The user cannot run them, and only a bundle can be copied.
    """
    closed = [program for program in binaries.programs if not account.can_run(program)]
    if not closed:
        return binaries
    if not binaries.bundle:
        raise EmbeddedServerError(
            f"the server runs as {account.name}, who cannot run {closed[0]}: "
            "use an installation that this user can reach"
        )
    copy = root / f"install-{binaries.version}"
    if not copy.exists():
        _copy_readable(binaries.bundle, copy)
    return Binaries(copy / binaries.directory.relative_to(binaries.bundle[0].parent))


def _copy_readable(bundle: tuple[Path, ...], target: Path) -> None:
    """Copy under another name first: a kill in between leaves nothing that looks complete."""
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".partial", dir=target.parent))
    for part in bundle:
        shutil.copytree(part, partial / part.name, symlinks=True)
    for place in (partial, *partial.rglob("*")):
        if not place.is_symlink():
            mode = place.stat().st_mode
            place.chmod(mode | (0o555 if place.is_dir() or mode & stat.S_IXUSR else 0o444))
    partial.rename(target)


def socket_directory(root: Path, account: Account) -> Path:
    """The private directory of the socket; made when needed, the same for every process."""
    near = root / "socket"
    if _fits(near):
        return own(near, account)
    recorded = _recorded_socket_directory(root)
    if recorded and _is_private(recorded, account):
        return recorded
    made = own(_short_directory(), account)
    (root / "socket.path").write_text(str(made))
    return made


def _recorded_socket_directory(root: Path) -> Path | None:
    """The directory that an earlier start chose because the root's own path did not fit."""
    record = root / "socket.path"
    return Path(record.read_text()) if record.exists() else None


def _fits(directory: Path) -> bool:
    path = str(directory / SOCKET_NAME)
    return len(path) <= _SOCKET_PATH_LIMIT and _PLAIN.fullmatch(path) is not None


def _short_directory() -> Path:
    for place in (tempfile.gettempdir(), "/tmp"):  # noqa: S108  # mkdtemp makes a private directory in it
        made = Path(tempfile.mkdtemp(prefix="sp-", dir=place))
        if _fits(made):
            return made
        made.rmdir()
    raise EmbeddedServerError("no short path for a socket: set TMPDIR to a shorter one")


def _is_private(directory: Path, account: Account) -> bool:
    """Anyone can make a name in the temporary directory: take only what is closed to all but our user."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return found.st_uid == account.uid and found.st_mode == stat.S_IFDIR | stat.S_IRWXU


def remove_leftovers(root: Path) -> None:
    """Remove what a killed start left half-made. Call with the start lock held."""
    for leftover in (*root.glob("data.*.partial"), *root.glob("install-*.partial")):
        shutil.rmtree(leftover, ignore_errors=True)


def remove_root(root: Path) -> None:
    """Delete the root directory, and a socket directory outside of it."""
    # Renamed first: who waits for the lock in here then sees at once that it is gone.
    doomed = Path(tempfile.mkdtemp(prefix=f".removed-{root.name}-", dir=root.parent))
    root.rename(doomed)
    if outside := _recorded_socket_directory(doomed):
        shutil.rmtree(outside, ignore_errors=True)
    shutil.rmtree(doomed)
