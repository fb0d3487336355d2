"""Journals of other systems that a database of read models knows by names. What is stored has no password."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

from journal.database import Database, Session
from journal.dsn import check_dsn, has_password
from journal.errors import ForeignJournalError, InvalidValue
from journal.foreign.eventsourcing_states import states
from journal.foreign.kinds import emmett, eventsourcing, message_db, pekko_jdbc, pekko_r2dbc
from journal.foreign.log import table_log
from journal.foreign.mapping import TableMapping, checked_names, toml_of, value_of
from journal.foreign.payloads import Decoder, json_text
from journal.foreign.pekko_payloads import pekko_payloads
from journal.log import Log
from journal.standby import Primary

_MAPPINGS: dict[str, Callable[..., TableMapping]] = {
    "eventsourcing": eventsourcing,
    "pekko-r2dbc": pekko_r2dbc,
    "akka-r2dbc": pekko_r2dbc,
    "pekko-jdbc": pekko_jdbc,
    "akka-jdbc": pekko_jdbc,
    "message-db": message_db,
    "emmett": emmett,
}
KINDS = (*_MAPPINGS, "table")
"""The systems that are known by a name, and ``table`` for any other."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_LIST = """
SELECT name, kind, mapping, dsn, dsn_variable FROM projections.journals
WHERE $1::text IS NULL OR name = $1 ORDER BY name COLLATE "C"
"""
_ATTACH = """
INSERT INTO projections.journals (name, kind, mapping, dsn, dsn_variable) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO NOTHING RETURNING TRUE
"""
_DETACH = "DELETE FROM projections.journals WHERE name = $1 RETURNING TRUE"


@dataclass(frozen=True, slots=True)
class AttachedJournal:
    """
    A journal of another system, as it is known by a name.

    Args:
        name: What offsets are stored with: letters, digits, and ``_``, ``-`` and ``.`` after the first.
        kind: One of :data:`KINDS`.
        mapping: TOML: of the kind ``table`` a mapping, of others arguments of the function that makes one.
        dsn: Where it is, without a password; or
        dsn_variable: the environment variable that says it.
    """

    name: str
    kind: str
    mapping: str
    dsn: str | None = None
    dsn_variable: str | None = None

    def check(self) -> None:
        """
        Refuse what cannot be stored.

        Raises:
            InvalidValue: A part is invalid, or the DSN holds a password.
        """
        if not _NAME.fullmatch(self.name) or self.name == "journal":
            raise InvalidValue(
                f"{self.name!r} cannot be the name of a journal: use up to 63 letters, digits, '_', '-' and '.'; "
                "'journal' is the name of a journal of this library"
            )
        if (self.dsn is None) == (not self.dsn_variable):
            raise InvalidValue(
                f"journal {self.name!r}: either a DSN or an environment variable must be given"
            )
        if self.dsn is not None and has_password(check_dsn(self.dsn)):
            raise InvalidValue(
                f"journal {self.name!r}: the DSN holds a password, which is not stored. Leave it to ~/.pgpass or to a "
                "service (service=NAME), or name an environment variable that has the whole DSN"
            )

    @property
    def table(self) -> TableMapping:
        """
        What its columns mean.

        Raises:
            InvalidValue: The kind is not known, or the mapping is invalid.
        """
        if self.kind == "table":
            return TableMapping.from_toml(self.mapping)
        if self.kind not in KINDS:
            raise InvalidValue(f"journal {self.name!r}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        make, written = _MAPPINGS[self.kind], toml_of(self.mapping)
        known = signature(make).parameters
        needed = {name for name, one in known.items() if one.default is one.empty}
        checked_names(written, known, needed)
        for name, value in written.items():
            wanted = int if isinstance(known[name].default, int) else str
            if name != "entity_type" and type(value) is not wanted:
                raise InvalidValue(f"mapping: {name} must be {'a number' if wanted is int else 'a text'}")
        return make(**{name: value_of(name, value) for name, value in written.items()})

    @property
    def place(self) -> str:
        """
        Its DSN.

        Raises:
            InvalidValue: The environment variable is not set, or is no DSN.
        """
        if self.dsn is not None:
            return self.dsn
        said = os.environ.get(self.dsn_variable or "")
        if not said:
            raise InvalidValue(
                f"journal {self.name!r}: the environment variable {self.dsn_variable} is not set"
            )
        return check_dsn(said, f"the DSN in {self.dsn_variable}")

    async def log(self, database: Database, primary: Primary | None = None) -> Log:
        """
        The log, to be read by sessions of a database that was connected to :attr:`place`.

        Args:
            database: That one.
            primary: Where it is a standby, its primary.

        Raises:
            InvalidValue: The mapping is invalid.
            ForeignJournalError: It cannot be read so.
            DatabaseUnavailable: There is no connection.
        """
        return await table_log(
            database, self.table, name=self.name, decode=decoder_of(self.kind), primary=primary
        )


def decoder_of(kind: str) -> Decoder:
    """
    What reads the payloads of a kind with the settings of this process.

    Raises:
        ForeignJournalError: A package is missing, or refuses the settings.
    """
    if kind.startswith(("pekko", "akka")):
        return pekko_payloads()
    if kind != "eventsourcing":
        return json_text
    try:
        from eventsourcing.application import Application  # noqa: PLC0415 - of an extra

        return states(Application)
    except ImportError as error:
        raise ForeignJournalError(
            f"states of eventsourcing need its package: pip install 'slice-projections[eventsourcing]' ({error})"
        ) from error
    except OSError as error:  # its EnvironmentError
        raise ForeignJournalError(f"states of eventsourcing: {error}") from error


async def attached_journals(session: Session, name: str | None = None) -> list[AttachedJournal]:
    """All that are attached, or the one of a name if there is one."""
    return [AttachedJournal(**row) for row in await session.fetch(_LIST, name)]


async def attached_journal(session: Session, name: str) -> AttachedJournal:
    """
    The journal of a name.

    Raises:
        ForeignJournalError: None is attached by it.
    """
    found = await attached_journals(session, name)
    if not found:
        raise _unknown(name)
    return found[0]


async def attach(session: Session, journal: AttachedJournal) -> None:
    """
    Store a journal.

    Raises:
        InvalidValue: A part is invalid, or the DSN holds a password.
        ForeignJournalError: One is attached by its name.
    """
    journal.check()
    values = (journal.name, journal.kind, journal.mapping, journal.dsn, journal.dsn_variable)
    if not await session.fetchval(_ATTACH, *values):
        raise ForeignJournalError(f"a journal {journal.name!r} is attached already: detach it first")


async def detach(session: Session, name: str) -> None:
    """
    Forget a journal. Offsets stay: who attaches it again by its name goes on.

    Raises:
        ForeignJournalError: None is attached by the name.
    """
    if not await session.fetchval(_DETACH, name):
        raise _unknown(name)


def _unknown(name: str) -> ForeignJournalError:
    return ForeignJournalError(
        f"no journal {name!r} is attached to the database of the read models: attach it by `projections "
        "attach`, or pass a DSN, such as postgresql://user@host/name"
    )
