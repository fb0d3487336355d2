"""
The embedded server: started by its first user, stopped by its last, whoever they are and however they end.

A process that uses the server holds a shared lock, which the kernel drops when the process dies. Starting
and stopping take an exclusive lock, so "is it running?" and "does anybody use it?" keep their answers.
"""

from __future__ import annotations

import shlex
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote

from journal.embedded import directories
from journal.embedded.account import Account, account_for
from journal.embedded.binaries import BINARIES_VARIABLE, Binaries, find_binaries, find_binaries_of
from journal.embedded.locks import UseLock, exclusive
from journal.errors import EmbeddedServerError

_TIMEOUT = 300.0  # seconds to start, the replay of the log after a crash included, or to stop
_PAUSE = 0.02  # seconds between two looks at a server that is starting or stopping
_LOG_LIMIT = 1_000_000  # bytes
_READY_LINE = 7  # of postmaster.pid, where the postmaster writes its state

_DEFAULTS = {
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",  # the log is for faults
    "jit": "off",  # small queries all over: compiling them costs more than running them
}
# These keep the server off the network and where its users look for it; nobody may set them.
_FIXED = {"listen_addresses": "", "port": "5432", "unix_socket_permissions": "0700"}
_RESERVED = {
    *_FIXED,
    "unix_socket_directories",
    "data_directory",
    "hba_file",
    "config_file",
    "external_pid_file",
}

# A server that was killed, or whose starter was, may need a moment until the next one can start.
_PASSING = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class _State(Enum):
    DOWN = auto()
    CHANGING = auto()
    READY = auto()


class EmbeddedServer:
    """
    A PostgreSQL server of our own below one directory, shared by all processes that name this directory.

    It listens on a Unix socket in a private directory and on nothing else. Use it as a context manager,
    which gives the DSN; or call :meth:`start` and :meth:`stop`.

    Args:
        root: The directory that it lives in; made when missing.
        settings: Server settings for a start, such as ``{"fsync": "off"}`` for a server that is thrown away.
            A server that already runs keeps the settings of the one who started it.
        binaries: The programs; found on this machine when not given.

    Raises:
        ValueError: A setting would open the server to the network or move its files.
    """

    def __init__(
        self, root: Path, settings: Mapping[str, str] | None = None, *, binaries: Binaries | None = None
    ) -> None:
        self.root = root.absolute()
        self._settings = _DEFAULTS | dict(settings or {})
        if refused := _RESERVED.intersection(self._settings):
            raise ValueError(f"not for an embedded server to set: {', '.join(sorted(refused))}")
        self._binaries = binaries
        self._data = self.root / "data"
        self._log = self.root / "server.log"
        self._use = UseLock(self.root / "use.lock")

    @classmethod
    def for_user(cls, settings: Mapping[str, str] | None = None) -> Self:
        """
        The server of this user, below ``PROJECTIONS_HOME`` or the user's data folder.

        Raises:
            EmbeddedServerError: There is no PostgreSQL on this machine, or none of the version that made the data.
        """
        binaries = binaries_for_user()
        return cls(directories.default_root(binaries.major), settings, binaries=binaries)

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> str:
        """
        Count as a user of the server, and start it when it is not running. Calling it again is allowed.

        Returns:
            A DSN that asyncpg, psycopg and psql take.

        Raises:
            EmbeddedServerError: No programs, no place for the data, or the server does not come up.
        """
        binaries = self._binaries = self._binaries or find_binaries()
        with self._alone():
            try:
                self._end_without_programs()
                self._use.take()
                return self._ensure_running(binaries)
            except BaseException:
                self._leave()
                raise

    def stop(self) -> None:
        """
        Count no longer as a user, and stop the server when nobody is left. Calling it again does nothing.

        Raises:
            EmbeddedServerError: The server does not stop.
        """
        if self._use.held:
            with self._alone():
                self._leave()

    def remove(self) -> bool:
        """
        Delete the server with all of its data, unless somebody uses it.

        Returns:
            Whether it is gone.

        Raises:
            EmbeddedServerError: The server does not stop, or its files cannot be deleted.
        """
        if not self.root.exists():
            return True
        with self._alone():
            if gone := self._leave():
                directories.remove_root(self.root)
        return gone

    def _alone(self) -> AbstractContextManager[None]:
        return exclusive(self.root / "start.lock", lambda: directories.make_root(self.root))

    def _leave(self) -> bool:
        """Stop the server if nobody else uses it; returns whether nobody does. Needs the start lock."""
        last = self._use.leave()
        if last and self._is_up():
            self._shut_down(account_for(self._data))
        return last

    def _is_up(self) -> bool:
        if not self._data.exists():
            return False
        directory = directories.socket_directory(self.root, account_for(self._data))
        return self._state(directory) is not _State.DOWN

    def _end_without_programs(self) -> None:
        """Stop a server that a killed process left running, and whose programs were deleted: it finds no library."""
        options = self._data / "postmaster.opts"
        program = Path(options.read_text().partition(' "')[0]) if options.exists() else self._data
        if not program.exists() and not self._leave() and self._is_up():
            raise EmbeddedServerError(
                f"the programs of the server that runs, {program}, were deleted: end the processes that use it, and it "
                "starts again with others"
            )

    def _ensure_running(self, binaries: Binaries) -> str:
        account = account_for(self._data)
        directories.open_root(self.root, account)
        directory = directories.socket_directory(self.root, account)
        if self._state(directory) is not _State.READY:
            binaries = directories.reachable_binaries(binaries, self.root, account)
            self._ensure_data(binaries, account)
            self._bring_up(binaries, account, directory)
        return f"postgresql://postgres@/postgres?host={quote(str(directory))}&port={_FIXED['port']}"

    def _state(self, directory: Path) -> _State:
        """Ask the socket, which tells the truth; the pid in postmaster.pid may be another process by now."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(directory / directories.SOCKET_NAME))
            except OSError:
                return _State.DOWN
        lines = _lines(self._data / "postmaster.pid")
        ready = len(lines) > _READY_LINE and lines[_READY_LINE].strip() == "ready"
        return _State.READY if ready else _State.CHANGING

    def _ensure_data(self, binaries: Binaries, account: Account) -> None:
        directories.remove_leftovers(self.root)
        if not self._data.exists():
            self._make_data(binaries, account)
        made_by = (self._data / "PG_VERSION").read_text().strip()
        if made_by != str(binaries.major):
            raise EmbeddedServerError(
                f"PostgreSQL {made_by} made {self._data}, and {binaries.directory} is {binaries.version}: "
                f"use version {made_by}, or set {directories.HOME_VARIABLE} to another place"
            )

    def _make_data(self, binaries: Binaries, account: Account) -> None:
        """Make the cluster under another name first: a kill in between leaves nothing half-made."""
        said = ""
        for locale in ("C.UTF-8", "C"):  # macOS and old systems do not have the first
            partial = Path(tempfile.mkdtemp(prefix="data.", suffix=".partial", dir=self.root))
            code, said = self._initdb(binaries, account, directories.own(partial, account), locale)
            if code == 0:
                partial.rename(self._data)
                return
            if "locale" not in said:
                break
        raise EmbeddedServerError(f"initdb failed in {self.root}: {said}")

    def _initdb(self, binaries: Binaries, account: Account, data: Path, locale: str) -> tuple[int, str]:
        options = ["--username=postgres", "--auth-local=trust", "--auth-host=reject", "--encoding=UTF8"]
        if self._settings.get("fsync") == "off":
            options.append("--no-sync")
        with tempfile.TemporaryFile("w+") as output:
            code = account.run(
                binaries.directory / "initdb", "-D", data, f"--locale={locale}", *options, output=output
            )
            output.seek(0)
            return code, output.read().strip()

    def _bring_up(self, binaries: Binaries, account: Account, directory: Path) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while (state := self._state(directory)) is not _State.READY:
            if state is _State.DOWN and (said := self._try_start(binaries, account, directory)) is not None:
                passing = any(fault in said for fault in _PASSING)
                if not passing or time.monotonic() > deadline:
                    raise EmbeddedServerError(f"PostgreSQL did not start; the end of {self._log}:\n{said}")
            if time.monotonic() > deadline:
                raise EmbeddedServerError(f"PostgreSQL is not ready after {_TIMEOUT:.0f} s; see {self._log}")
            time.sleep(_PAUSE)

    def _try_start(self, binaries: Binaries, account: Account, directory: Path) -> str | None:
        """Returns what the server said when it did not start."""
        if self._log.exists() and self._log.stat().st_size > _LOG_LIMIT:
            self._log.replace(self._log.with_suffix(".log.1"))
        fixed = _FIXED | {"unix_socket_directories": str(directory)}
        options = shlex.join(f"--{name}={value}" for name, value in {**self._settings, **fixed}.items())
        with self._log.open("ab") as log:
            before = log.tell()
            code = self._pg_ctl(binaries, account, "start", "-o", options, output=log)
        return None if code == 0 else self._log.read_bytes()[before:].decode(errors="replace").strip()

    def _shut_down(self, account: Account) -> None:
        binaries = directories.reachable_binaries(self._binaries or find_binaries(), self.root, account)
        with self._log.open("ab") as log:
            code = self._pg_ctl(binaries, account, "stop", "-m", "fast", output=log)
        if code != 0:
            raise EmbeddedServerError(f"PostgreSQL did not stop; see {self._log}")

    def _pg_ctl(self, binaries: Binaries, account: Account, *arguments: str, output: IO[bytes]) -> int:
        # The data directory as ".", for pg_ctl starts the server by a shell and does not quote paths for it.
        program, seconds = binaries.directory / "pg_ctl", f"{_TIMEOUT:.0f}"
        return account.run(program, "-D", ".", "-w", "-t", seconds, *arguments, cwd=self._data, output=output)


def binaries_for_user() -> Binaries:
    """
    The programs that the server of this user runs with: of the version that made the data, where there are data.

    Else data would seem to be gone as soon as a newer PostgreSQL is installed alongside the one that made them.

    Raises:
        EmbeddedServerError: There is no PostgreSQL on this machine, or none of the version that made the data.
    """
    majors = directories.majors_with_data()
    if not majors:
        return find_binaries()
    if (binaries := find_binaries_of(majors)) is None:
        major, found = max(majors), find_binaries()
        raise EmbeddedServerError(
            f"PostgreSQL {major} made the data in {directories.default_root(major)}, and {found.directory} is "
            f"{found.version}: install PostgreSQL {major} again, or set {BINARIES_VARIABLE} to its programs. "
            f"To move the data to {found.version}, see docs/quickstart.md; to begin with an empty database, "
            f"set {directories.HOME_VARIABLE} to another directory"
        )
    return binaries


@contextmanager
def temporary_server() -> Iterator[str]:
    """
    A server of this process alone for the length of the block, which is removed with its data; gives its DSN.

    Raises:
        EmbeddedServerError: There is no PostgreSQL on this machine, or it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="slice-projections-") as base:
        Path(base).chmod(0o711)  # the server may run as another user, who passes through
        server = EmbeddedServer(Path(base, "server"), {"fsync": "off"})
        try:
            with server as dsn:
                yield dsn
        finally:
            server.remove()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []
