"""Values as text of SQL, for statements that cannot bind them."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from journal import unstorable

Value: TypeAlias = "str | int | datetime | tuple[str, ...]"


def literal(value: Value) -> str:
    """
    Quote a value for SQL text, whatever it holds and however the server reads backslashes.

    Needs a connection whose client_encoding is UTF8, as connections of this library set it.

    Raises:
        ValueError: The text has a NUL or half a surrogate pair, which PostgreSQL stores nowhere.
    """
    match value:
        case str():
            return _quoted(value)
        case datetime():
            return f"'{value.isoformat()}'::timestamptz"
        case tuple():
            return f"ARRAY[{', '.join(map(_quoted, value))}]::text[]"
        case _:
            return str(int(value))


def _quoted(text: str) -> str:
    if found := unstorable(text):
        raise ValueError(f"{text!r} holds {found}, which PostgreSQL cannot store")
    doubled = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{doubled}'" if "\\" in text else f"'{doubled}'"
