"""Ids of events whose table has none: always the same, and made when somebody looks at them, which few handlers do."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from hashlib import sha1
from typing import Any
from uuid import NAMESPACE_URL, UUID, SafeUUID, uuid5

_OTHER_BITS = (1 << 128) - 1 & ~(0xF << 76 | 0b11 << 62)
_VERSION_5 = 5 << 76 | 0b10 << 62


class _EventId(UUID):
    """What uuid5() makes of a namespace and an event's source and number."""

    __slots__ = ("_of",)

    @property  # type: ignore[misc]
    def int(self) -> builtins.int:
        namespace, source_id, seq_nr = _parts.__get__(self)
        digest = sha1(namespace + f"{source_id}/{seq_nr}".encode(), usedforsecurity=False).digest()
        return builtins.int.from_bytes(digest[:16]) & _OTHER_BITS | _VERSION_5

    @property  # type: ignore[misc]
    def is_safe(self) -> SafeUUID:
        return SafeUUID.unknown

    def __repr__(self) -> str:
        return f"UUID('{self}')"

    def __reduce__(self) -> tuple[Any, ...]:
        return UUID, (str(self),)


_new = object.__new__
_parts: Any = vars(_EventId)["_of"]  # a UUID refuses assignments


def event_ids(journal: str) -> Callable[[str, int], UUID]:
    """What makes the id of an event of the journal of this name, by its source and number."""
    namespace, write = uuid5(NAMESPACE_URL, f"slice-projections:{journal}").bytes, _parts.__set__

    def id_of(source_id: str, seq_nr: int) -> UUID:
        made = _new(_EventId)
        write(made, (namespace, source_id, seq_nr))
        return made

    return id_of
