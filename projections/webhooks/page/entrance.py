"""The way in by a link: it is looked at, then used once, and a session begins."""

from __future__ import annotations

import json
from datetime import timedelta

from journal import Database
from projections.extras import from_extra
from projections.http.cross_site import foreign_form
from projections.webhooks.api.problems import Problem, problem_of
from projections.webhooks.api.request_guard import request_id_of
from projections.webhooks.api.settings import ApiSettings
from projections.webhooks.encryption import Cipher
from projections.webhooks.page.forms import read_form
from projections.webhooks.page.links import PageLinks
from projections.webhooks.page.rendering import Templates

with from_extra("webhooks"):
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route

_USED = "SELECT free, answer FROM projections._recall_answer_v1('', $1)"
_USE = "SELECT projections._keep_answer_v1('', $1, $2, $3)"
_REMEMBERED = timedelta(hours=24)
_NO_REFERRER = {"referrer-policy": "no-referrer"}
"""The address of this page has a token."""
_LONGEST_FORM = 8192


class Entrance:
    """
    Lets browsers in that come by a link.

    Looking at a link does not use it, because programs that check or preview links do that. And a cookie for this site
    alone (SameSite=Strict) goes along with what a page of this site asks for, not with what another site leads to: so
    the browser is shown a page with a button first.

    Args:
        links: What links are signed with.
        database: Remembers which of them were used.
        cipher: Encrypts that, as it encrypts secrets of endpoints.
        templates: Of the page.
        settings: Limits of sizes and times.
    """

    def __init__(
        self,
        links: PageLinks,
        database: Database,
        cipher: Cipher,
        templates: Templates,
        settings: ApiSettings,
    ) -> None:
        self._links = links
        self._database = database
        self._cipher = cipher
        self._templates = templates
        self._settings = settings.model_copy(update={"max_body_bytes": _LONGEST_FORM})

    @property
    def routes(self) -> list[Route]:
        """The pages of the way in and out."""
        return [
            Route("/enter", self._look, methods=["GET"]),
            Route("/enter", self._enter, methods=["POST"]),
            Route("/leave", self._leave, methods=["POST"]),
        ]

    async def _look(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        found = self._links.read(token)
        if found is None:
            return self._refused(request, _not_good())
        text = self._templates.render("enter.html", root=self._links.path, tenant=found[0], token=token)
        return HTMLResponse(text, headers=_NO_REFERRER)

    async def _enter(self, request: Request) -> Response:
        try:
            # A browser that sends no referrer sends no Origin but "null": what it says of the site has to do.
            if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
                raise Problem(403, "cross_site", "the form comes from another site")  # noqa: TRY301 - becomes an answer
            form = await read_form(request, self._settings)
            found = self._links.read(form.get("token", ""))
            if found is None or not await self._used_now(found[1]):
                raise _not_good()  # noqa: TRY301 - likewise
        except Exception as error:  # noqa: BLE001 - each becomes an answer, and what is not foreseen is logged
            return self._refused(request, problem_of(error, request_id_of(request.scope)))
        response = RedirectResponse(f"{self._links.path}/", 303, _NO_REFERRER)
        self._links.begin(response, found[0])
        return response

    async def _leave(self, request: Request) -> Response:
        """End the session."""
        if found := foreign_form(request.headers, self._settings.origins):
            return self._refused(request, Problem(found.status, "cross_site", found.reason))
        response = HTMLResponse(self._templates.render("left.html", root=self._links.path))
        self._links.end(response)
        return response

    async def _used_now(self, link_id: str) -> bool:
        """Whether the link had not been used before: of several at a time one is let in."""
        # As answers to requests are kept, of administrators, whom no tenant is: a link is followed once.
        key = f"page-link/{link_id}"
        kept = self._cipher.encrypt(json.dumps({"digest": "", "text": None, "headers": {}}))
        async with self._database.session() as session, session.transaction():
            row = await session.fetchrow(_USED, key)
            assert row is not None  # noqa: S101 - the function returns one row
            if not row["free"] or row["answer"] is not None:
                return False
            await session.fetchval(_USE, key, kept, _REMEMBERED)
        return True

    def _refused(self, request: Request, problem: Problem) -> Response:
        request_id = request_id_of(request.scope)
        text = self._templates.render(
            "error.html", problem=problem, root=self._links.path, request_id=request_id
        )
        return HTMLResponse(text, problem.status, _NO_REFERRER)


def _not_good() -> Problem:
    return Problem(
        401, "link_not_good",
        "the link has been used, has expired, or is incomplete: open the page from the application again",
    )  # fmt: skip
