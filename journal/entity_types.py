"""Sets of entity types, whose events are read: one, several, or every one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from journal.appending import array_literal, check_entity_type
from journal.errors import InvalidEvent


@dataclass(frozen=True, slots=True)
class EntityTypes:
    """
    Entity types whose events are read together, in the order of their times; :meth:`of` makes and checks it.

    Args:
        names: The types, each once and in order; None for every type, also those that are added later.
    """

    names: tuple[str, ...] | None

    @classmethod
    def of(cls, given: str | Collection[str] | EntityTypes, what: str = "entity_type") -> EntityTypes:
        """
        What somebody asks for.

        Args:
            given: One type, a tuple, list or set of them, or :data:`ALL_TYPES`.
            what: Names it in errors.

        Raises:
            InvalidEvent: It names no type, one twice, or one that cannot be; the message says what to write.
        """
        if isinstance(given, EntityTypes):
            return given
        if isinstance(given, str):
            check_entity_type(given, what)
            if "," in given:
                raise InvalidEvent(
                    f"{what} is {given[:40]!r}: write several as {_parts(given)!r}, and one whose name has a comma as "
                    f"{(given,)!r}"
                )
            if _is_every(given):
                raise InvalidEvent(
                    f"{what} is {given!r}: for every type write ALL_TYPES, which is not a text, and one of this name "
                    f"as {(given,)!r}"
                )
            return cls((given,))
        if not isinstance(given, tuple | list | set | frozenset) or not given:
            raise InvalidEvent(
                f"{what} is {given!r:.80}: write the name of a type, several as ('plane', 'airport'), or ALL_TYPES for "
                "every one"
            )
        for name in given:
            check_entity_type(name, what)
        names = sorted(given)
        for one, other in pairwise(names):
            if one == other:
                raise InvalidEvent(f"{what} names {one!r} twice: write each type once")
        return cls(tuple(names))

    @classmethod
    def each(cls, names: Collection[str], what: str = "entity_types") -> EntityTypes:
        """
        What somebody asks for where a list is the usual way to write it, or an option that is repeated.

        Raises:
            InvalidEvent: As for :meth:`of`; or one of the names looks like several types, or like every one.
        """
        for name in names:
            check_entity_type(name, what)
            if "," in name or _is_every(name):
                parts = ", ".join(map(repr, _parts(name)))
                right = "leave it out for every type" if _is_every(name) else f"write {parts}, each by itself"
                one = f"EntityTypes.of({(name[:40],)!r})"
                raise InvalidEvent(f"{what} has {name[:40]!r}: {right}; in Python, one of this name is {one}")
        return cls.of(tuple(names), what)

    @classmethod
    def stored(cls, names: Sequence[str] | None) -> EntityTypes:
        """Those that the database has; see :attr:`sql`."""
        return cls(None if names is None else tuple(names))

    @property
    def sql(self) -> list[str] | None:
        """As the functions of the schema take them: NULL is every type."""
        return None if self.names is None else list(self.names)

    @property
    def literal(self) -> str | None:
        """The text of :attr:`sql`, for one of several: arrays of arrays are of one length."""
        return None if self.names is None else array_literal(self.names, "an entity type")

    def __contains__(self, entity_type: str) -> bool:
        """Whether events of a type are read."""
        return self.names is None or entity_type in self.names

    def __str__(self) -> str:
        """For tables."""
        return "every type" if self.names is None else ", ".join(self.names)

    @property
    def said(self) -> str:
        """For sentences: type 'plane', types 'airport', 'plane', or every type."""
        if self.names is None:
            return "every type"
        return f"type{'s' * (len(self.names) > 1)} {', '.join(map(repr, self.names))}"


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in name.split(","))


def _is_every(name: str) -> bool:
    """Whether it is what somebody writes who wants every type."""
    return name.lower() in {"all", "all_types"}


ALL_TYPES = EntityTypes(None)
"""Every entity type, also those that are added later."""
