"""Headers of a tenant's own that go with each request: which there may be, and which are the sender's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from projections.webhooks.errors import InvalidEndpoint

MOST_HEADERS = 30
LONGEST_NAME = 100
LONGEST_VALUE = 4096
MOST_CHARACTERS = 8192
"""Of all names and values together: servers refuse requests with more."""

_RESERVED = frozenset(
    (
        "accept-encoding", "connection", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding",
        "upgrade", "user-agent", "baggage", "traceparent", "tracestate",
    )
)  # fmt: skip
_RESERVED_PREFIXES = ("content-", "proxy-", "webhook-")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # https://www.rfc-editor.org/rfc/rfc9110#name-tokens
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_SHOWN = 40


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """
    Check the headers that a tenant wants sent with each request; returns them without blanks around the values.

    InvalidValue never has a value, which may be secret: a name or a value cannot be sent, a name is the sender's, or
    is there twice in other case, or they are too many or too long.
    """
    if len(headers) > MOST_HEADERS:
        raise InvalidEndpoint(f"{len(headers)} headers are too many: an endpoint has at most {MOST_HEADERS}")
    checked: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in headers.items():
        _check_name(name)
        if name.lower() in seen:
            raise InvalidEndpoint(f"header {name!r} is there twice: names are the same in any case")
        seen.add(name.lower())
        checked[name] = _checked_value(name, value)
    if sum(len(name) + len(value) for name, value in checked.items()) > MOST_CHARACTERS:
        raise InvalidEndpoint(f"the headers are too long together: at most {MOST_CHARACTERS} characters")
    return checked


def is_reserved(name: str) -> bool:
    """Whether a header is the sender's alone, in whatever case it is written."""
    lowered = name.lower()
    return lowered in _RESERVED or lowered.startswith(_RESERVED_PREFIXES)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > LONGEST_NAME:
        shown = ascii(name if isinstance(name, str) and len(name) <= _SHOWN else str(name)[:_SHOWN] + "...")
        raise InvalidEndpoint(
            f"{shown} cannot be the name of a header: letters, digits and hyphens, at most {LONGEST_NAME}"
        )
    if is_reserved(name):
        raise InvalidEndpoint(f"header {name!r} is set by the sender: leave it out")


def _checked_value(name: str, value: object) -> str:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise InvalidEndpoint(
            f"the value of header {name!r} cannot be sent: printable ASCII on one line, without NUL"
        )
    if len(value) > LONGEST_VALUE:
        raise InvalidEndpoint(
            f"the value of header {name!r} is {len(value)} characters long: at most {LONGEST_VALUE}"
        )
    return value.strip(" \t")
