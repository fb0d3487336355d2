"""What requests identify themselves with in addition to their signature: client certificates, clients of OAuth."""

from __future__ import annotations

from typing import Any

from journal import ProjectionsError
from projections.extras import from_extra
from projections.webhooks.api import credential_operations as api
from projections.webhooks.api.endpoint_operations import get_endpoint
from projections.webhooks.api.problems import Problem
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response

_OAUTH = ("token_url", "client_id", "scope", "method")


async def certificate(visit: Visit) -> Response:
    """Show which client certificate there is, and ask for another one."""
    return await _shown(visit, "certificate.html")


async def set_certificate(visit: Visit) -> Response:
    """Set it. What was written is not shown again, whether it is accepted or not: it has a private key."""
    try:
        await visit.ask(
            api.set_certificate,
            body={"pem": visit.form.get("pem", "")},
            version=visit.form.get("version", ""),
        )
    except (Problem, ProjectionsError) as error:
        return await _shown(visit, "certificate.html", visit.refused(error))
    return _done(visit, said="certificate-set")


async def remove_certificate(visit: Visit) -> Response:
    """Remove it."""
    await visit.ask(api.remove_certificate)
    return _done(visit, said="certificate-removed")


async def oauth(visit: Visit) -> Response:
    """Show which client of OAuth there is, and ask for another one."""
    return await _shown(visit, "oauth.html")


async def set_oauth(visit: Visit) -> Response:
    """Set it. Its secret is not shown again, whether it is accepted or not."""
    given = {name: visit.form.get(name, "").strip() for name in _OAUTH}
    body = given | {"client_secret": visit.form.get("client_secret", "")}
    try:
        await visit.ask(api.set_oauth, body=body, version=visit.form.get("version", ""))
    except (Problem, ProjectionsError) as error:
        return await _shown(visit, "oauth.html", visit.refused(error), given)
    return _done(visit, said="oauth-set")


async def remove_oauth(visit: Visit) -> Response:
    """Remove it."""
    await visit.ask(api.remove_oauth)
    return _done(visit, said="oauth-removed")


async def _shown(
    visit: Visit, template: str, problem: Problem | None = None, given: dict[str, str] | None = None
) -> Response:
    endpoint = await visit.ask(get_endpoint)
    facts: Any = endpoint.oauth
    values = {name: getattr(facts, name) if facts else "" for name in _OAUTH} if given is None else given
    return visit.render(
        template, status=problem.status if problem else 200, endpoint=endpoint, values=values, problem=problem,
        wrong={each.field: each.message for each in problem.errors} if problem else {}, here="endpoints",
    )  # fmt: skip


def _done(visit: Visit, said: str) -> Response:
    return visit.go("endpoints", visit.request.path_params["endpoint_id"], said=said)
