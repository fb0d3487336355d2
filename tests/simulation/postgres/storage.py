"""
Tables of row versions, and what a snapshot sees of them.

A transaction becomes visible at one moment, when it gets its place in the order of commits. A snapshot is the last
place that there was when it was taken: it sees the versions of transactions up to there, and those of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[Any, ...]

NEVER = 2**62
"""The place of a transaction that has not committed."""


class Transaction:
    """
    A transaction of one backend.

    Args:
        virtual: As ``pg_locks`` names it.
    """

    __slots__ = (
        "changed",
        "ended",
        "gid",
        "has_id",
        "locks",
        "place",
        "prepared_after",
        "virtual",
        "waits_for",
    )

    def __init__(self, virtual: str) -> None:
        self.virtual = virtual
        self.place = NEVER
        """In the order of commits."""
        self.ended = False
        self.has_id = False
        """Whether it has written or locked a row, which takes an id."""
        self.gid: str | None = None
        """Its name, when it is prepared."""
        self.prepared_after = NEVER
        """The last place that there was when it was prepared."""
        self.changed: list[tuple[Table, Key, Version, bool]] = []
        """Versions that it has made (true) or replaced, in order."""
        self.locks: dict[Hashable, None] = {}
        self.waits_for: Hashable | None = None
        """The lock."""


class Version:
    """A version of a row: who has made it, and who has replaced or deleted it."""

    __slots__ = ("made_by", "replaced_by", "row")

    def __init__(self, row: Row, made_by: Transaction) -> None:
        self.row = row
        self.made_by = made_by
        self.replaced_by: Transaction | None = None


class Snapshot:
    """
    What a statement sees.

    Args:
        place: The last one in the order of commits.
        own: The transaction that asks.
    """

    __slots__ = ("own", "place")

    def __init__(self, place: int, own: Transaction) -> None:
        self.place = place
        self.own = own

    def sees(self, version: Version) -> bool:
        """Whether a version is there for it."""
        made, replaced = version.made_by, version.replaced_by
        if made is not self.own and made.place > self.place:
            return False
        return replaced is None or (replaced is not self.own and replaced.place > self.place)


class Table:
    """
    A table with one unique key.

    Args:
        name: In the schema.
        key: The columns of the key.
    """

    def __init__(self, name: str, *key: str) -> None:
        self.name = name
        self._columns = key
        self._versions: dict[Key, list[Version]] = {}

    def key_of(self, row: Row) -> Key:
        """The key of a row."""
        return tuple(row[column] for column in self._columns)

    def rows(
        self, snapshot: Snapshot, where: Callable[[Row], Any] | None = None
    ) -> Iterator[tuple[Key, Row]]:
        """The rows that a snapshot sees, in the order in which their keys came to be."""
        place, own = snapshot.place, snapshot.own
        for key, versions in list(self._versions.items()):
            for version in reversed(versions):
                # Snapshot.sees, without a call for each version
                made, replaced = version.made_by, version.replaced_by
                if (made is own or made.place <= place) and (
                    replaced is None or (replaced is not own and replaced.place > place)
                ):
                    if where is None or where(version.row):
                        yield key, version.row
                    break

    def get(self, snapshot: Snapshot, *key: Any) -> Row | None:
        """The row of a key, if the snapshot sees one."""
        for version in reversed(self._versions.get(key, ())):
            if snapshot.sees(version):
                return version.row
        return None

    def newest(self, key: Key) -> Version | None:
        """The last version of a key that was not rolled back, if it was not replaced: for who has locked the row."""
        versions = self._versions.get(key)
        return versions[-1] if versions and versions[-1].replaced_by is None else None

    def write(self, transaction: Transaction, key: Key, row: Row | None) -> None:
        """Have a transaction, which has locked the row, make a version, or delete the row."""
        versions = self._versions.setdefault(key, [])
        if versions and versions[-1].replaced_by is None:
            versions[-1].replaced_by = transaction
            transaction.changed.append((self, key, versions[-1], False))
        if row is not None:
            versions.append(Version(row, transaction))
            transaction.changed.append((self, key, versions[-1], True))

    def undo(self, key: Key, version: Version, *, made: bool) -> None:
        """Take back what a transaction did."""
        if made:
            self._versions[key].remove(version)
        else:
            version.replaced_by = None

    def go_back(self, place: int, kept: Iterable[Transaction]) -> None:
        """Forget what was committed after a place, but for transactions that are prepared then."""
        kept = set(kept)
        for key, versions in list(self._versions.items()):
            there = [v for v in versions if v.made_by.place <= place or v.made_by in kept]
            for version in there:
                by = version.replaced_by
                if by is not None and by.place > place and by not in kept:
                    version.replaced_by = None
            if there:
                self._versions[key] = there
            else:
                del self._versions[key]
