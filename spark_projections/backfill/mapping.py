"""How files say what their events are; needs no package that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

CHUNK = 10_000
"""Events of a transaction."""

Format: TypeAlias = Literal["parquet", "csv", "json"]

REQUIRED = ("source_id", "event_type", "payload", "db_timestamp")
FIELDS = (*REQUIRED, "seq_nr", "version", "metadata", "tags", "event_id", "entity_type")
"""What a column may be; ``entity_type`` is only compared."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """
    How rows become events.

    Args:
        entity_type: Of all of them.
        format: Of the files: ``json`` has one object on each line.
        columns: Columns by the fields of an event that they are; others are taken under the field's own name.
    """

    entity_type: str
    format: Format
    columns: Mapping[str, str] = field(default_factory=dict)

    def column(self, name: str) -> str:
        """The column of a field."""
        return self.columns.get(name, name)
