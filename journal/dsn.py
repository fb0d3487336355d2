"""DSNs: checking their form, and hiding their passwords."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from journal.errors import InvalidValue

_FORM = "postgresql://user:password@host:5432/database"
_KEYWORDS = re.compile(r"\s*(\w+\s*=\s*('(\\.|[^'\\])*'|(\\.|[^\s'\\])*)(\s+|$))+")
_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S*@|(password\s*=\s*)('[^']*'|\S+)", re.IGNORECASE)


def hide_password(text: str) -> str:
    """Replace the password in a DSN, or in a message that quotes one, by ``***``."""
    return _PASSWORD.sub(lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***", text)


def has_password(dsn: str) -> bool:
    """Whether a DSN holds a password, also one that is written with escapes."""
    plain = unquote(dsn)
    return hide_password(plain) != plain


def check_dsn(dsn: str, name: str = "the DSN") -> str:
    """
    Return the DSN when it has the form of one: a PostgreSQL URL or a libpq keyword string.

    Raises:
        InvalidValue: It has neither form; the message never quotes it, for it may hold a password.
    """
    if reason := _fault(dsn):
        # Without the cause: a parser's own message may quote the password.
        raise InvalidValue(f"{name} {reason}; it looks like {_FORM}") from None
    return dsn


def _fault(dsn: str) -> str | None:
    if not dsn.strip():
        return "is empty"
    if "\0" in dsn:
        return "holds a NUL character"
    if dsn.startswith(("postgresql://", "postgres://")):
        return _fault_of_url(dsn)
    if "://" not in dsn and _KEYWORDS.fullmatch(dsn):
        return None
    return "does not begin with postgresql://"


def _fault_of_url(dsn: str) -> str | None:
    authority = re.split(r"[/?#]", dsn.split("://", 1)[1], maxsplit=1)[0]
    if re.search(r"\s", dsn):
        return "holds white space (write %20)"
    if authority.count("@") > 1:
        return "holds more than one @ (write %40 inside a password)"
    try:
        ports = [
            host.rpartition(":")[2] for host in authority.rpartition("@")[2].split(",") if _has_port(host)
        ]
        urlsplit(dsn)
    except ValueError:
        return "cannot be read as a URL"
    if any(not port.isdecimal() or not 0 < int(port) < 2**16 for port in ports):
        return "has a port that is not a number (write %2F, %3F and %23 for /, ? and # in a password)"
    return None


def _has_port(host: str) -> bool:
    return re.search(r":[^\]]*$", host) is not None
