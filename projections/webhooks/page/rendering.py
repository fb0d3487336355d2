"""Templates: what they are made of, and how values look in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from journal import RawJson
from projections.extras import from_extra
from projections.webhooks.api.json_text import write_json
from projections.webhooks.page.theme import PageTheme

with from_extra("webhooks"):
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

_HERE = Path(__file__).parent
SAID: Mapping[str, str] = {
    "changed": "The endpoint was changed. Attempts from now on go by the new settings.",
    "paused": "The endpoint is paused. Its events are kept until you resume it.",
    "resumed": "The endpoint is active again.",
    "removed": "The endpoint and its deliveries were removed.",
    "verified": "The URL has returned the challenge: it is verified.",
    "unverified": "The URL has not returned the challenge. See what your receiver answered, and try again.",
    "retried": "The delivery will be tried again now.",
    "all-retried": "The failed deliveries will be tried again, in their order.",
    "some-retried": "Some of the failed deliveries will be tried again now; there are more.",
    "dropped": "The delivery was dropped: it will not be tried again.",
    "certificate-set": "The client certificate was set. Attempts from now on show it.",
    "certificate-removed": "The client certificate was removed. Attempts from now on show none.",
    "oauth-set": "The client was set. Attempts from now on have an access token.",
    "oauth-removed": "The client was removed. Attempts from now on have no access token.",
    "erased": "The data were erased, and will not be sent any more. An attempt that had begun may still arrive.",
}
"""What was done, by the word that an address has: nobody can have the page say anything else."""

_CODES = {
    "blocked_address": "the address is not allowed, such as one of a private network",
    "connection_refused": "nothing listens at that address and port",
    "connection_reset": "the connection was closed before an answer was complete",
    "dns_error": "the host's name has no address",
    "filter_too_costly": "the filter would have to look at too much",
    "invalid_request": "the URL or a header cannot be sent",
    "network_error": "the network failed",
    "network_unreachable": "there is no way to that network",
    "protocol_error": "the answer was not HTTP, or broke off",
    "timeout": "no complete answer within the time-out",
    "token_error": "the token URL gave no access token",
    "tls_error": "the TLS handshake or the certificate failed",
    "too_large_headers": "the answer's headers were too large",
}
_DELIVERY_STATES = {
    "done": "arrived", "dead": "failed", "pending": "to be sent", "leased": "on its way", "waiting": "behind others",
    "dropped": "dropped", "expired": "expired", "erased": "erased",
}  # fmt: skip
_SECOND = 1.0
_MOST_SHOWN = 65_536
"""Characters of a payload or an answer."""


class Templates:
    """
    The page's templates.

    Args:
        theme: The name, colours and logo.
        root: Where browsers find the page on its host; empty: where it is mounted.
        can_leave: Whether a session can be ended here.
    """

    def __init__(self, theme: PageTheme, root: str = "", *, can_leave: bool = False) -> None:
        self.root = root
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._environment.globals |= {
            "theme": theme,
            "can_leave": can_leave,
            "said_texts": SAID,
            "most_shown": _MOST_SHOWN,
            "delivery_states": _DELIVERY_STATES,
        }
        self._environment.filters |= {
            "at": _at, "seconds": _seconds, "percent": _percent, "pretty": _pretty, "meaning": _meaning,
            "number": _number,
        }  # fmt: skip

    def render(self, template: str, **values: Any) -> str:
        """The text of a page."""
        return self._environment.get_template(template).render(values)


def _at(time: datetime | None) -> Markup | str:
    """A time in UTC, which the page's script shows in the reader's zone."""
    if time is None:
        return "\N{EN DASH}"
    utc = time.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        utc.isoformat(timespec="milliseconds"), utc.strftime("%Y-%m-%d %H:%M:%S")
    )


def _seconds(value: Any) -> str:
    if value is None:
        return "\N{EN DASH}"
    seconds = value if isinstance(value, int | float) else value.total_seconds()
    return f"{seconds * 1000:.0f} ms" if seconds < _SECOND else f"{seconds:.1f} s"


def _percent(share: float | None) -> str:
    # Rounded down: what has failed once is not 100 %.
    return "\N{EN DASH}" if share is None else f"{int(share * 1000) / 10:g} %"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _pretty(value: Any) -> str:
    """JSON for people; a payload stays as it was written."""
    return str(value) if isinstance(value, RawJson) else json.dumps(value, indent=2, ensure_ascii=False)


def _meaning(code: str | None) -> str:
    return _CODES.get(code or "", "")


def raw_or_none(value: Any) -> str | None:
    """A payload as it was written; None where it is no longer kept."""
    return None if value is None else str(value) if isinstance(value, RawJson) else write_json(value)
