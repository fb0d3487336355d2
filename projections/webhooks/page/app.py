"""The page for tenants as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journal import Database
from projections.extras import from_extra
from projections.http.cross_site import foreign_form
from projections.http.security_headers import StrictHeaders
from projections.webhooks.addresses import AddressRules
from projections.webhooks.api import ApiSettings
from projections.webhooks.api.authentication import Authenticate
from projections.webhooks.api.calls import ApiCalls
from projections.webhooks.api.problems import Problem, problem_of
from projections.webhooks.api.request_guard import RequestGuard, request_id_of
from projections.webhooks.encryption import Cipher, PlainCipher
from projections.webhooks.page.entrance import Entrance
from projections.webhooks.page.forms import Form, FormMark, read_form
from projections.webhooks.page.links import PageLinks
from projections.webhooks.page.rendering import Templates
from projections.webhooks.page.theme import PageTheme
from projections.webhooks.page.views import FORMS, PAGES, View
from projections.webhooks.page.visit import Visit
from projections.webhooks.topics import Topic

with from_extra("webhooks"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, HTMLResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

_STATIC = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Everything from here, nothing inline: text that events and answers bring cannot become code."""


def webhooks_page(
    database: Database,
    auth: Authenticate | PageLinks,
    *,
    theme: PageTheme | None = None,
    cipher: Cipher | None = None,
    rules: AddressRules | None = None,
    allow_http: bool = False,
    topics: Collection[str | Topic] | None = None,
    settings: ApiSettings | None = None,
) -> Starlette:
    """
    The page on which a tenant looks after its webhooks: endpoints, secrets, test messages, attempts, statistics.

    It asks what :func:`projections.webhooks.api.webhooks_app` is asked, in the tenant's name and within the tenant's
    limits. It is mounted in another application, or served by itself. It works without JavaScript.

    Args:
        database: The database that stores endpoints, deliveries and the log; its role needs projections_worker and
            projections_writer.
        auth: Tells whose browser asks: :class:`PageLinks`, or the application's own function, which is given the
            request and returns a :class:`projections.webhooks.api.Caller` with a tenant, or None for nobody.
        theme: The name, colours and logo of the application.
        cipher: How secrets are kept; the same as for who delivers.
        rules: Which addresses endpoints may be at, and challenges go to; the same as for who delivers.
        allow_http: Let endpoints without TLS through, too.
        topics: Those that there are, by name or as :class:`projections.webhooks.Topic` with schemas and examples: an
            endpoint that asks for another one is refused. None: whatever one asks for.
        settings: Limits of sizes, times and tenants, as of the API, counted by themselves; None: the defaults.
    """
    settings, theme = settings or ApiSettings(), theme or PageTheme()
    api = ApiCalls(database, settings, cipher=cipher, rules=rules, allow_http=allow_http, topics=topics)
    links = auth if isinstance(auth, PageLinks) else None
    templates = Templates(theme, links.path if links else "", can_leave=links is not None)
    if links:
        settings = settings.model_copy(update={"origins": settings.origins | {links.origin}})
    page = _Page(auth, api, templates, settings, secure=links.secure if links else None)
    entrance = (
        Entrance(links, api.services.database, cipher or PlainCipher(), templates, settings)
        if links
        else None
    )

    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=_STATIC, packages=[("projections.http", "static")])),
            *_theme_routes(theme),
            *(entrance.routes if entrance else ()),
            *page.routes(),
        ],
        middleware=[
            Middleware(StrictHeaders, content_policy=_POLICY, referrer_policy="same-origin"),
            Middleware(RequestGuard, settings=settings),
        ],
        exception_handlers={HTTPException: page.refused},
    )
    app.router.redirect_slashes = False
    return app


def _theme_routes(theme: PageTheme) -> list[Route]:
    async def stylesheet(_: Request) -> Response:
        return Response(theme.stylesheet, media_type="text/css")

    async def logo(_: Request) -> Response:
        if theme.logo is None:
            raise HTTPException(404)
        # A file that is opened by itself may run nothing either.
        return FileResponse(
            theme.logo, media_type=theme.logo_type, headers={"content-security-policy": "default-src 'none'"}
        )

    return [Route("/theme.css", stylesheet), Route("/logo", logo)]


@dataclass
class _Page:
    """Answers with pages, to tenants alone."""

    auth: Callable[[Request], Awaitable[Any]]
    api: ApiCalls
    templates: Templates
    settings: ApiSettings
    secure: bool | None
    """Whether cookies are for TLS alone; None: as the request came."""

    def routes(self) -> list[Route]:
        """Of all pages and forms."""
        shown = [Route(path, self._follower(view), methods=["GET"]) for path, view in PAGES.items()]
        sent = [Route(path, self._follower(view), methods=["POST"]) for path, view in FORMS.items()]
        return [*sent, *shown]

    def _follower(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def follow(request: Request) -> Response:
            try:
                return await self._answer(request, view)
            except Exception as error:  # noqa: BLE001 - each becomes an answer, and what is not foreseen is logged
                return self._problem(request, problem_of(error, request_id_of(request.scope)))

        return follow

    async def _answer(self, request: Request, view: View) -> Response:
        caller = await self.auth(request)
        if caller is None:
            raise Problem(401, "signed_out", "nobody is signed in here, or the session has ended")
        if caller.tenant is None:
            raise Problem(403, "no_tenant", "this page is for tenants: whoever is signed in is none")
        secure = request.url.scheme == "https" if self.secure is None else self.secure
        cookie = "__Host-webhooks-form" if secure else "webhooks-form"
        mark = FormMark.of(request, cookie)
        form = Form()
        if request.method == "POST":
            form = await self._form(request, caller.tenant)
            mark.check(form, caller.tenant)
        visit = Visit(request, caller.tenant, self.api, self.templates, mark.token(caller.tenant), form)
        response = await view(visit)
        if mark.is_new:
            response.set_cookie(cookie, mark.value, httponly=True, samesite="strict", secure=secure)
        return response

    async def _form(self, request: Request, tenant: str) -> Form:
        if found := foreign_form(request.headers, self.settings.origins):
            raise Problem(found.status, "cross_site", found.reason)
        allowances = self.api.services.allowances
        allowances.ask(tenant)  # before the form is read
        return await read_form(request, self.settings, lambda size: allowances.brought(tenant, size))

    async def refused(self, request: Request, error: Exception) -> Response:
        """Answer what no page is at."""
        status = getattr(error, "status_code", 500)
        said = {404: "there is no such page", 405: "this page takes no such request"}
        problem = Problem(status, "not_found", said.get(status, "the request cannot be followed"))
        return self._problem(request, problem)

    def _problem(self, request: Request, problem: Problem) -> Response:
        root = self.templates.root or str(request.scope.get("root_path", ""))
        request_id = request_id_of(request.scope)
        text = self.templates.render("error.html", problem=problem, root=root, request_id=request_id)
        return HTMLResponse(text, problem.status, dict(problem.headers or {}))
