"""Forms that browsers send: read within limits, and known to be of this page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable
from secrets import token_urlsafe
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from projections.extras import from_extra
from projections.webhooks.api.problems import Problem
from projections.webhooks.api.requests import read_content
from projections.webhooks.api.settings import ApiSettings

with from_extra("webhooks"):
    from starlette.datastructures import MultiDict
    from starlette.requests import ClientDisconnect, Request

TOKEN_FIELD = "form_token"  # noqa: S105 - a field's name
_MARK_BYTES = 32
_MARK = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_FIELDS = 500
_TYPE = "application/x-www-form-urlencoded"

Form: TypeAlias = MultiDict


class FormMark(NamedTuple):
    """
    What a browser keeps in a cookie, by which its own forms are known.

    A form has a token that is made of the mark and the tenant: no other site can read either, and a form of one tenant
    is not one of another who has signed in since.
    """

    value: str
    is_new: bool

    @classmethod
    def of(cls, request: Request, cookie: str) -> FormMark:
        """The browser's; a new one where it has none."""
        given = request.cookies.get(cookie, "")
        return (
            cls(given, is_new=False)
            if _MARK.fullmatch(given)
            else cls(token_urlsafe(_MARK_BYTES), is_new=True)
        )

    def token(self, tenant: str) -> str:
        """What forms of a tenant have."""
        return hmac.new(self.value.encode(), tenant.encode(), hashlib.sha256).hexdigest()

    def check(self, form: Form, tenant: str) -> None:
        """Let a form through that has the token; Problem: it has not."""
        given = form.get(TOKEN_FIELD, "")
        if self.is_new or not hmac.compare_digest(
            given.encode(errors="replace"), self.token(tenant).encode()
        ):
            raise Problem(
                403,
                "form_expired",
                "the form is not of this session: go back, reload the page, and send it again",
            )


async def read_form(
    request: Request, settings: ApiSettings, spend: Callable[[int], None] | None = None
) -> Form:
    """
    The fields of a form; ``spend`` is called with the number of its bytes.

    Problem: it is too large or too slow, is no form, or is not UTF-8.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise Problem(415, "not_a_form", f"a form is sent as {_TYPE}")
    try:
        async with asyncio.timeout(settings.body_timeout.total_seconds()):
            content = await read_content(request, settings.max_body_bytes)
    except TimeoutError:
        raise Problem(
            408, "body_too_slow", f"the form has not arrived within {settings.body_timeout}"
        ) from None
    except ClientDisconnect:
        raise Problem(400, "body_cut_off", "the form ended too early") from None
    if spend is not None:
        spend(len(content))
    try:
        fields = parse_qsl(
            content.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:  # also what is not UTF-8
        raise Problem(
            400, "malformed_form", f"the form is not UTF-8, or has more than {_MOST_FIELDS} fields"
        ) from None
    # Browsers send every line end of a text as CRLF.
    return MultiDict([(name, value.replace("\r\n", "\n")) for name, value in fields])
