"""Operations on endpoints, and what they take and show."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

from pydantic import ConfigDict, Field

from projections.interests import compile_filter, parse_topics
from projections.webhooks import endpoint_verification
from projections.webhooks.api.operations import (
    Body,
    Call,
    ListPage,
    NoBody,
    Operations,
    PageQuery,
    Query,
    Tenant,
    Time,
    View,
    Word,
    without_defaults,
)
from projections.webhooks.api.problems import Problem
from projections.webhooks.endpoints import ENABLED, Endpoint, EndpointSettings, EndpointState
from projections.webhooks.messages import message_uuid, send
from projections.webhooks.sender import HttpSender, NotSentError
from projections.webhooks.signing import Secret, SigningKey, generate_secret, parse_secret
from projections.webhooks.stats import EndpointStats, endpoint_stats
from projections.webhooks.tenant_rows import Json

endpoint_operations = Operations("endpoints")
_PATH = "/v1/endpoints/{endpoint_id}"

# A public key signs nothing.
OwnSecret = Annotated[str, Field(max_length=200, pattern="^(whsec|whsk)_")]


class SecretView(View):
    """What a secret can be told by; itself it is shown once, when it is made."""

    signatures: Literal["v1", "v1a"]
    fingerprint: str
    public_key: str | None = None
    """What receivers verify v1a signatures with."""


class EndpointView(Endpoint):
    """An endpoint. The values of its headers are not shown: they may be secret."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)

    headers: dict[str, str] = Field(default={}, exclude=True)
    header_names: tuple[str, ...]

    @classmethod
    def of(cls, endpoint: Endpoint, **more: Any) -> Self:
        """What is shown of an endpoint, and more."""
        return cls.model_validate(vars(endpoint) | {"header_names": tuple(endpoint.headers)} | more)


class OneEndpoint(EndpointView):
    """An endpoint, and what its secrets can be told by, the newest first."""

    secrets: tuple[SecretView, ...]


class NewSecret(View):
    """A secret that was just made: it is shown this once."""

    secret: str
    """To verify with: whsec_... is shared with the sender, whpk_... is the public half of the sender's key."""
    fingerprint: str
    version: int
    """Of the endpoint, which this has changed."""


class CreatedEndpoint(EndpointView):
    """An endpoint that was just made; its secret is shown this once."""

    secret: str


class EndpointPage(ListPage[EndpointView]):
    """Some endpoints, in the order of their ids."""


class StatsPage(ListPage[EndpointStats]):
    """The state of some endpoints."""


class OneStatsQuery(Query):
    """Over which time attempts count."""

    minutes: Annotated[int, Field(ge=1, le=10_080)] = 60


class StatsQuery(PageQuery, OneStatsQuery):
    """Over which time attempts count."""


class NewEndpointBody(EndpointSettings):
    """A new endpoint."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    tenant: Tenant | None = None
    """Whose, for administrators."""
    secret: OwnSecret | None = None
    """To sign with, whsec_... or whsk_...; by default one is made."""
    signatures: Literal["v1", "v1a"] = "v1"
    """What kind of secret is made."""


class EndpointChanges(EndpointSettings):
    """Settings to change; each is replaced as a whole, those left out stay."""

    model_config = ConfigDict(use_attribute_docstrings=True, json_schema_extra=without_defaults)

    url: str = Field(default="", min_length=1, max_length=2048)


class StateBody(Body):
    """Why."""

    reason: Annotated[str, Field(max_length=500)] | None = None


class RotateBody(Body):
    """How to change to a new secret."""

    secret: OwnSecret | None = None
    """The new one; by default one is made, of the kind of the old one."""
    grace: Annotated[float, Field(ge=0, le=2_592_000)] = 86_400
    """Seconds for which the old ones sign too."""


class TestBody(Body):
    """What to send."""

    topic: Word | None = None
    """By default one that the endpoint wants."""
    data: Json = None
    expires_at: Time | None = None
    """If it is not delivered by then, it is not attempted any more."""


class SentTest(View):
    """A message that was sent to one endpoint."""

    event_id: str
    topic: str


class Verification(View):
    """The outcome of a challenge."""

    endpoint_id: str
    verified: bool
    """Whether it has given the challenge back, now or before."""
    code: str | None
    """What it answered: an HTTP status, or what went wrong; null: it was verified before, and was not asked."""


@endpoint_operations.add("POST", "/v1/endpoints", status=201, location=_PATH)
async def create_endpoint(call: Call[Query, NewEndpointBody]) -> CreatedEndpoint:
    """Make an endpoint, for events from now on."""
    body, limit = call.body, call.services.settings.endpoints_per_tenant
    settings = EndpointSettings.model_validate(body.model_dump(include=set(EndpointSettings.model_fields)))
    chosen = generate_secret(body.signatures) if body.secret is None else parse_secret(body.secret)
    made = await call.services.endpoints.create(
        call.owner(body.tenant), settings, chosen, at_most=call.at_most(limit)
    )
    return CreatedEndpoint.of(made.endpoint, secret=_shown(made.secret))


@endpoint_operations.add("GET", "/v1/endpoints")
async def list_endpoints(call: Call[PageQuery, NoBody]) -> EndpointPage:
    """List endpoints."""
    limit = call.query.limit
    found = await call.services.endpoints.list(call.tenant, next=call.query.next, limit=limit)
    following = found[-1].endpoint_id if len(found) == limit else None
    return EndpointPage(data=tuple(map(EndpointView.of, found)), next=following)


@endpoint_operations.add("GET", "/v1/endpoint-stats")
async def list_endpoint_stats(call: Call[StatsQuery, NoBody]) -> StatsPage:
    """Tell the state of endpoints, in the order of their ids."""
    limit = call.query.limit
    data = await _stats(call, call.tenant, after=call.query.next, limit=limit + 1)
    more = len(data) > limit
    return StatsPage(data=data[:limit], next=data[limit - 1].endpoint_id if more else None)


@endpoint_operations.add("GET", _PATH, problems=(404,))
async def get_endpoint(call: Call[Query, NoBody]) -> OneEndpoint:
    """Show an endpoint."""
    endpoint_id = call.place["endpoint_id"]
    endpoint = await call.services.endpoints.get(call.tenant, endpoint_id)
    secrets = await call.services.endpoints.secrets(call.tenant, endpoint_id)
    return OneEndpoint.of(endpoint, secrets=tuple(map(_secret_view, secrets)))


@endpoint_operations.add("PATCH", _PATH, problems=(404,), matches="must")
async def change_endpoint(call: Call[Query, EndpointChanges]) -> EndpointView:
    """
    Change settings of an endpoint.

    Each is replaced as a whole, so the header if-match says which version the new ones were made from: the etag of
    the endpoint as it was read. 412: somebody else has changed it since; read it again, and change that. With * it is
    changed whatever it is.
    """
    changes = call.body.model_dump(include=call.body.model_fields_set)
    endpoint_id = call.place["endpoint_id"]
    if not changes:
        endpoint = await call.services.endpoints.get(call.tenant, endpoint_id)
        call.check_version(endpoint.version)
        return EndpointView.of(endpoint)
    changed = await call.services.endpoints.change(call.tenant, endpoint_id, changes, version=call.version)
    return EndpointView.of(changed)


@endpoint_operations.add("DELETE", _PATH, status=204, problems=(404,), matches="may")
async def delete_endpoint(call: Call[Query, NoBody]) -> None:
    """Remove an endpoint and its deliveries; what was tried stays in the log."""
    await call.services.endpoints.remove(call.tenant, call.place["endpoint_id"], version=call.version)


@endpoint_operations.add("POST", f"{_PATH}/pause", problems=(404, 409), matches="may")
async def pause_endpoint(call: Call[Query, StateBody]) -> EndpointView:
    """Send nothing to an endpoint until it is resumed; what is for it is kept."""
    return await _set_state(call, "paused", ENABLED)


@endpoint_operations.add("POST", f"{_PATH}/resume", problems=(404, 409), matches="may")
async def resume_endpoint(call: Call[Query, StateBody]) -> EndpointView:
    """Go on with a paused endpoint."""
    return await _set_state(call, "active", ENABLED)


@endpoint_operations.add("POST", f"{_PATH}/disable", problems=(404,), matches="may")
async def disable_endpoint(call: Call[Query, StateBody]) -> EndpointView:
    """Send nothing to an endpoint until it is enabled."""
    return await _set_state(call, "disabled")


@endpoint_operations.add("POST", f"{_PATH}/enable", problems=(404,), matches="may")
async def enable_endpoint(call: Call[Query, StateBody]) -> EndpointView:
    """Go on with an endpoint, whoever or whatever had disabled or paused it."""
    return await _set_state(call, "active")


@endpoint_operations.add("POST", f"{_PATH}/rotate-secret", problems=(404,), matches="may")
async def rotate_secret(call: Call[Query, RotateBody]) -> NewSecret:
    """
    Sign with a new secret, which is shown this once.

    The old ones sign alongside it for a while, so that the receiver can change in its time.
    """
    made = await call.services.endpoints.rotate_secret(
        call.tenant,
        call.place["endpoint_id"],
        call.body.secret,
        grace=timedelta(seconds=call.body.grace),
        version=call.version,
    )
    secret = made.secret
    return NewSecret(secret=_shown(secret), fingerprint=secret.fingerprint, version=made.endpoint.version)


@endpoint_operations.add("GET", f"{_PATH}/stats", problems=(404,))
async def get_endpoint_stats(call: Call[OneStatsQuery, NoBody]) -> EndpointStats:
    """Tell how well an endpoint receives."""
    endpoint = await call.services.endpoints.get(call.tenant, call.place["endpoint_id"])
    found = await _stats(call, endpoint.tenant, endpoint_id=endpoint.endpoint_id)
    if not found:  # removed meanwhile
        raise Problem(404, "unknown_endpoint", "there is no such endpoint")
    return found[0]


@endpoint_operations.add(
    "POST",
    f"{_PATH}/verify",
    problems=(404,),
    # No transaction is open while somebody else's server is waited for.
    own_key="Not needed: a URL that is verified is not asked again.",
)
async def verify_endpoint(call: Call[Query, NoBody]) -> Verification:
    """
    Have an endpoint's URL show that it wants webhooks.

    It is sent a challenge: a request of the topic webhook.verification, signed as its deliveries are. It is verified
    when a 2xx has the challenge as its body, as text or as JSON: {"challenge": "..."}. Where verification is asked for,
    nothing else is sent to the endpoint before. Another URL has to be verified again.
    """
    services = call.services
    endpoint = await services.endpoints.get(call.tenant, call.place["endpoint_id"])
    if endpoint.verified:
        return Verification(endpoint_id=endpoint.endpoint_id, verified=True, code=None)
    services.allowances.challenge(call.caller.tenant)
    try:
        async with HttpSender(services.rules, proxy=services.proxy) as sender:
            verified, reply = await endpoint_verification.verify_endpoint(
                services.database, services.endpoints, sender, endpoint.tenant, endpoint.endpoint_id,
                within=services.settings.challenge_timeout,
            )  # fmt: skip
    except NotSentError as error:
        after = {"retry-after": str(math.ceil(error.delay.total_seconds()))}
        raise Problem(503, "not_sent", "no challenge can be sent from here just now", headers=after) from None
    return Verification(endpoint_id=endpoint.endpoint_id, verified=verified, code=reply.code)


@endpoint_operations.add("POST", f"{_PATH}/test", raw=("data",), status=202, problems=(400, 404))
async def send_test(call: Call[Query, TestBody]) -> SentTest:
    """Send a message to this endpoint alone; its topics and its filter have to let it through."""
    endpoint = await call.services.endpoints.get(call.tenant, call.place["endpoint_id"])
    topic = call.body.topic or re.sub(r"\*+", "test", endpoint.topics[0])
    data: Any = call.raw.get("data", {"test": True})
    message_id = uuid4()
    event_id = str(message_uuid(endpoint.tenant, message_id))
    _check_wanted(endpoint, topic, event_id, call.body.data if "data" in call.raw else data)
    async with call.services.database.session() as session, session.transaction():
        sent = await send(
            session, endpoint.tenant, topic, data, message_id=message_id, endpoint_id=endpoint.endpoint_id,
            expires_at=call.body.expires_at,
        )  # fmt: skip
    return SentTest(event_id=str(sent.event_id), topic=topic)


def _shown(secret: Secret) -> str:
    """What a receiver needs of it, which of a key pair is the public half."""
    return (secret.public if isinstance(secret, SigningKey) else secret).reveal()


def _secret_view(secret: Secret) -> SecretView:
    public = {"public_key": secret.public.reveal()} if isinstance(secret, SigningKey) else {}
    return SecretView(signatures=secret.version, fingerprint=secret.fingerprint, **public)


async def _set_state(
    call: Call[Query, StateBody], state: EndpointState, expected: Collection[EndpointState] | None = None
) -> EndpointView:
    endpoints, endpoint_id = call.services.endpoints, call.place["endpoint_id"]
    reason, version = call.body.reason, call.version
    return EndpointView.of(
        await endpoints.set_state(call.tenant, endpoint_id, state, reason, expected=expected, version=version)
    )


async def _stats(
    call: Call[Any, Any],
    tenant: str | None,
    *,
    endpoint_id: str | None = None,
    after: str = "",
    limit: int = 1,
) -> tuple[EndpointStats, ...]:
    window = timedelta(minutes=call.query.minutes)
    async with call.services.database.session() as session:
        return tuple(
            await endpoint_stats(
                session, tenant, window=window, endpoint_id=endpoint_id, after=after, limit=limit
            )
        )


def _check_wanted(endpoint: Endpoint, topic: str, event_id: str, data: Any) -> None:
    if not parse_topics(endpoint.topics).matches(topic):
        raise Problem(400, "not_wanted", "the endpoint's topics do not let this one through")
    document = {
        "id": event_id,
        "topic": topic,
        "time": datetime.now().astimezone().isoformat(),
        "metadata": {},
        "data": data,
    }
    if endpoint.filter is not None and not compile_filter(endpoint.filter).matches(document):
        raise Problem(400, "not_wanted", "the endpoint's filter does not let this message through")
