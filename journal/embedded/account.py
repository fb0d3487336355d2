"""
Whom the server runs as: PostgreSQL refuses root, so root's server runs as another user.

Programs are run as that user by fork, setuid and exec; no user is created and no password is asked.
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from journal.errors import EmbeddedServerError

_UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the server runs as."""

    uid: int
    gid: int
    name: str

    @property
    def is_other(self) -> bool:
        """Whether this is another user than the one who runs this process."""
        return self.uid != os.geteuid()

    def run(
        self, *command: str | Path, cwd: Path | str = "/", output: IO[Any] | int = subprocess.DEVNULL
    ) -> int:
        """
        Run a program as this user.

        Args:
            command: The program and its arguments.
            cwd: The working directory of the command.
            output: Takes what it says. A file, not a pipe: the server inherits it and keeps it open.

        Returns:
            Its exit code.

        Raises:
            EmbeddedServerError: This process may not become that user.
            OSError: That user cannot run the program.
        """
        identity: dict[str, Any] = (
            {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}
        )
        try:
            done = subprocess.run(  # noqa: S603  # our own commands, no shell
                command,
                cwd=cwd,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                start_new_session=True,  # Ctrl-C is for us; the server is stopped when its last user leaves
                **identity,
            )
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            raise EmbeddedServerError(f"this process may not run programs as {self.name}") from error
        return done.returncode

    def can_enter(self, directory: Path) -> bool:
        """Whether this user can go into a directory: tried, since mode bits do not tell the whole truth."""
        return self.run("/bin/sh", "-c", 'cd -- "$1"', "sh", directory) == 0

    def can_run(self, program: Path) -> bool:
        """Whether this user can run a program."""
        try:
            return self.run(program, "--version") == 0
        except PermissionError:
            return False


def _environment() -> Mapping[str, str]:
    """The caller's, without PGPORT, PGOPTIONS and their like, in one language and one time zone."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def account_for(data: Path) -> Account:
    """
    The user for a data directory: ourselves, and for root its owner, else ``postgres`` or ``nobody``.

    Raises:
        EmbeddedServerError: The data belong to somebody else, or root finds no user to run as.
    """
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in {None, os.geteuid()}:
            raise EmbeddedServerError(
                f"{data} belongs to {_name(owner)}: set PROJECTIONS_HOME to a place of yours"
            )
        return Account(os.geteuid(), os.getegid(), _name(os.geteuid()))
    for wanted in (owner,) if owner else _UNPRIVILEGED:
        try:
            entry = pwd.getpwuid(wanted) if isinstance(wanted, int) else pwd.getpwnam(wanted)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)
    raise EmbeddedServerError(
        f"PostgreSQL refuses to run as root, and there is no user {owner or ' or '.join(_UNPRIVILEGED)}: "
        "run as a normal user, or set PROJECTIONS_DSN to a database of yours"
    )


def _name(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else "nobody"
    except KeyError:
        return f"user {uid}"
