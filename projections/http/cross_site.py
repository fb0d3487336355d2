"""
Tells what a program or a site's own page asks for from what another site makes somebody's browser ask for.

Where a request may change something although it carries nothing of its own to say who asks (everybody on this machine
may, or a browser adds a password or a cookie by itself), those that another site could have made are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

_WHERE = "behind a proxy, name it with --origin of the monitor, in origins of ApiSettings, or in the URL of PageLinks"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class Foreign(NamedTuple):
    """Why a request may be another site's."""

    status: int
    reason: str


def foreign(method: str, headers: Mapping[str, str], origins: Collection[str] = ()) -> Foreign | None:
    """
    Why a request that would change something may be another site's; None: it is not.

    What only reads is never refused: another site cannot see the answer. Names of headers are in lower case. Pages
    may ask from the host that the request is for, and from ``origins``: what a proxy shows as
    ``https://monitor.example.com``.
    """
    if method in _READS:
        return None
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return Foreign(403, "the request comes from another site")
    if (found := _foreign_origin(headers, origins)) is not None:
        return found
    # What a form or a link can make a browser send has another type, and no headers of these names.
    if method == "POST" and not is_json(headers) and "idempotency-key" not in headers:
        return Foreign(
            415, "a POST has the header content-type: application/json, with a body or without one"
        )
    return None


def foreign_form(headers: Mapping[str, str], origins: Collection[str] = ()) -> Foreign | None:
    """
    Why a form that was sent may be another site's; None: it is of a page of this site, which browsers say.

    Whoever sends no ``Origin`` is no browser of these years: it is refused. A form has a token of its own besides.
    """
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return Foreign(403, "the form comes from another site")
    if "origin" not in headers:
        return Foreign(403, "the request has no Origin, which browsers send with a form")
    return _foreign_origin(headers, origins)


def is_json(headers: Mapping[str, str]) -> bool:
    """Whether a request says that its body is JSON."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _foreign_origin(headers: Mapping[str, str], origins: Collection[str]) -> Foreign | None:
    origin = headers.get("origin")
    if origin is None or _is_ours(origin.lower(), headers.get("host", "").lower(), origins):
        return None
    return Foreign(403, f"the request's Origin is not this site's: {_WHERE}")


def _is_ours(origin: str, host: str, origins: Collection[str]) -> bool:
    return origin in {each.lower().rstrip("/") for each in origins} or _netloc(origin) == host


def _netloc(origin: str) -> str | None:
    """None, which no host is, for what names none: "null", or what is not a URL."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
