"""Endpoints: where the webhooks of a tenant go, which of them, how, and with what secrets they are signed."""

from __future__ import annotations

import json
import secrets as random_source
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from journal import Database, NotFound, Row
from projections.interests import InvalidFilter, parse_filter
from projections.webhooks.addresses import AddressRules
from projections.webhooks.checks import check_tenant
from projections.webhooks.credentials import CertificateFacts, OAuthFacts
from projections.webhooks.encryption import Cipher, PlainCipher
from projections.webhooks.endpoint_bounds import bounds, check_bounds
from projections.webhooks.endpoint_credentials import FACTS_COLUMN, EndpointCredentials
from projections.webhooks.errors import InvalidEndpoint, InvalidSecret, fields_of
from projections.webhooks.headers import checked_headers
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.signing import PublicKey, Secret, SigningKey, generate_secret, parse_secret
from projections.webhooks.tenant_rows import TenantRows
from projections.webhooks.topics import Topic, endpoint_topics, names_of
from projections.webhooks.urls import checked_url

EndpointState: TypeAlias = Literal["active", "paused", "disabled"]
ENABLED: tuple[EndpointState, ...] = ("active", "paused")
"""What an endpoint is expected to be that is paused or resumed: what is disabled has to be enabled."""

Ordering: TypeAlias = Literal["none", "key", "endpoint"]

_COLUMNS = (
    """
endpoint_id, tenant, url, description, topics, filter::text AS filter, headers::text AS headers, state, reason,
policy::text AS policy, max_in_flight, rate_limit, ordering, on_dead, when_disabled, gzip, version, created_at,
updated_at, coalesce(verified_url = url, FALSE) AS verified,"""
    + FACTS_COLUMN
)
_CREATE = f"SELECT {_COLUMNS} FROM projections._create_endpoint_v1($1, $2, $3, $4, $5)"
_CHANGE = f"SELECT {_COLUMNS} FROM projections._change_endpoint_v1($1, $2, $3, $4)"
_SET_STATE = f"SELECT {_COLUMNS} FROM projections._set_endpoint_state_v1($1, $2, $3, $4, $5, $6)"
_ROTATE = f"SELECT {_COLUMNS} FROM projections._rotate_secret_v1($1, $2, $3, $4, $5)"
_SECRETS = """
SELECT s.secret, s.expires_at FROM projections.webhook_secrets AS s
INNER JOIN projections.webhook_endpoints AS e ON s.endpoint_id = e.endpoint_id
WHERE s.endpoint_id = $1 AND ($2::text IS NULL OR e.tenant = $2) AND (s.expires_at IS NULL OR s.expires_at > now())
ORDER BY s.secret_id DESC
"""
_STORED = "SELECT secret_id, secret FROM projections.webhook_secrets ORDER BY secret_id FOR UPDATE"
_STORE = "UPDATE projections.webhook_secrets SET secret = $2 WHERE secret_id = $1"
_CREDENTIALS = {"certificate", "oauth"}
_ANSWERS = """
SELECT tenant, key, answer FROM projections.webhook_answers
WHERE expires_at > clock_timestamp() ORDER BY tenant, key FOR UPDATE
"""
_STORE_ANSWER = "UPDATE projections.webhook_answers SET answer = $3 WHERE tenant = $1 AND key = $2"


class EndpointSettings(BaseModel):
    """What the owner of an endpoint says about it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_timedelta="float",
        ser_json_inf_nan="constants",
        use_attribute_docstrings=True,
    )

    url: str
    """Where to POST; https, unless http is allowed."""

    description: str = Field(default="", max_length=1000)
    """A text for people, such as what receives the webhooks."""

    topics: tuple[str, ...] = ("**",)
    """Which topics: names, or patterns in which * is one segment and ** any number of them; ** alone for all."""

    filter: dict[str, Any] | None = None
    """Which events of these; null or None: all."""

    headers: dict[str, str] = {}
    """Sent with each request."""

    policy: RetryPolicy = RetryPolicy()
    """When to try again, how long to wait for an answer, when to stop."""

    max_in_flight: int = Field(default=10, ge=1, le=1000)
    """Requests on their way at a time, over all processes."""

    rate_limit: float | None = Field(default=None, ge=0.000_001, le=100_000)
    """Requests in a second, over all processes; None: as many as there are."""

    ordering: Ordering = "none"
    """What is sent one after the other: nothing, messages with the same key, or all of the endpoint. A message that
    fails holds the next ones of its order back until it has arrived, or is dead."""

    on_dead: Literal["skip", "block"] = "skip"
    """After a dead letter, the next delivery of its order is sent, or held until somebody decides."""

    when_disabled: Literal["keep", "discard"] = "keep"
    """Whether events are kept for an endpoint that is disabled, to be sent once it is enabled."""

    gzip: bool = False
    """Compress what is sent. The signature is that of the bytes before."""


class Endpoint(EndpointSettings):
    """An endpoint as it is stored."""

    endpoint_id: str
    tenant: str
    state: EndpointState
    reason: str | None
    """Why it is not active."""
    version: int
    """Counts its changes."""
    created_at: datetime
    """Events from before are not for it."""
    updated_at: datetime
    verified: bool = False
    """Whether its URL has shown that it wants webhooks."""
    certificate: CertificateFacts | None = None
    """What TLS shows of the sender."""
    oauth: OAuthFacts | None = None
    """Who gets the access tokens that are sent along."""


class NewEndpoint(NamedTuple):
    """An endpoint, and the new secret that its deliveries are signed with: shown this once."""

    endpoint: Endpoint
    secret: Secret


class Endpoints(EndpointCredentials, TenantRows[Endpoint]):
    """
    The endpoints of all tenants. Where a tenant is given, those of others are not there; None is for administrators.

    Args:
        database: The database that stores the endpoints.
        cipher: How secrets are kept; the same for all processes. By default as they are.
        rules: Which addresses an endpoint may be at.
        allow_http: Let URLs without TLS through, too.
        topics: Those that there are: an endpoint that asks for another one is refused. None: whatever one asks for.
    """

    _kind = "endpoint"
    _remove = "SELECT projections._remove_endpoint_v1($1, $2, $3)"
    _columns = _COLUMNS

    def __init__(
        self,
        database: Database,
        cipher: Cipher | None = None,
        rules: AddressRules | None = None,
        *,
        allow_http: bool = False,
        topics: Collection[str | Topic] | None = None,
    ) -> None:
        super().__init__(database)
        self._cipher = cipher or PlainCipher()
        self._rules = rules or AddressRules()
        self._allow_http = allow_http
        self._topics = None if topics is None else names_of(topics)

    async def create(
        self,
        tenant: str,
        settings: EndpointSettings,
        secret: Secret | str | None = None,
        *,
        at_most: int | None = None,
    ) -> NewEndpoint:
        """
        Make an endpoint, for events from now on; without a secret, one is made to sign with.

        Args:
            tenant: The tenant that owns the endpoint, 1 to 200 characters.
            settings: The URL, and all else that is not as by default.
            secret: What deliveries are signed with; None: a new secret.
            at_most: Refuse a tenant that has as many endpoints already; None: any number.

        Raises:
            NotAllowed: The tenant has as many as it may make.
            InvalidValue: The tenant, the URL, a header, the topics, the filter or the secret is invalid, or it
                asks for more than the limits allow that ``projections webhooks limits`` shows.
        """
        check_tenant(tenant, InvalidEndpoint)
        chosen = generate_secret() if secret is None else _signing(secret)
        endpoint_id = f"ep_{random_source.token_hex(16)}"
        stored = json.dumps(self._checked(settings.model_dump(mode="json")))
        encrypted = self._cipher.encrypt(chosen.reveal())
        async with self._database.session() as session:
            check_bounds(settings, EndpointSettings(url=settings.url), await bounds(session))
            made = await self._written(session, _CREATE, endpoint_id, tenant, stored, encrypted, at_most)
        return NewEndpoint(made, chosen)

    async def change(
        self, tenant: str | None, endpoint_id: str, changes: Mapping[str, Any], *, version: int | None = None
    ) -> Endpoint:
        """
        Change some of an endpoint's settings, each as a whole; those left out stay as they are.

        Only if it has the version that is named, which the changes were made from; None: whatever it has.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.
            changes: New values by the names of :class:`EndpointSettings`.
            version: Only if the endpoint has this version, which the changes were made from; None: whatever it has.

        Returns:
            The endpoint as this change has written it.

        Raises:
            InvalidValue: A setting is unknown, or is invalid.
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version: somebody has changed it meanwhile.
        """
        found = await self.get(tenant, endpoint_id)
        old = found.model_dump(include=set(EndpointSettings.model_fields))
        with fields_of("an endpoint"):
            settings = EndpointSettings.model_validate(old | dict(changes))
        # What stays as it is was checked by whoever has set it, by their rules.
        stored = json.dumps(self._checked(settings.model_dump(mode="json", include=set(changes))))
        async with self._database.session() as session:
            check_bounds(settings, found, await bounds(session))
            return await self._written(session, _CHANGE, tenant, endpoint_id, stored, version)

    async def set_state(
        self,
        tenant: str | None,
        endpoint_id: str,
        state: EndpointState,
        reason: str | None = None,
        *,
        expected: Collection[EndpointState] | None = None,
        version: int | None = None,
    ) -> Endpoint:
        """
        Make an endpoint active, paused or disabled. What is to be delivered stays, and goes on when it is active.

        Only if its state is one of what is expected, such as ``active`` or ``paused``, and its version the one that
        is named; None: whatever it is.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.
            state: ``active``, ``paused`` or ``disabled``.
            reason: Why, for people: it is shown with the endpoint.
            expected: Only if its state is one of these, such as ``active`` or ``paused``; None: whatever it is.
            version: Only if the endpoint has this version; None: whatever it has.

        Returns:
            The endpoint as this change has written it.

        Raises:
            NotFound: The tenant has none of this id.
            NotAllowed: It is not one of what is expected.
            NotAllowed: It has another version.
        """
        allowed = None if expected is None else list(expected)
        async with self._database.session() as session:
            return await self._written(
                session, _SET_STATE, tenant, endpoint_id, state, reason, allowed, version
            )

    async def rotate_secret(
        self,
        tenant: str | None,
        endpoint_id: str,
        secret: Secret | str | None = None,
        *,
        grace: timedelta = timedelta(hours=24),
        version: int | None = None,
    ) -> NewEndpoint:
        """
        Sign with a new secret; the old ones sign alongside it for a while, so that receivers can change in their time.

        Without a secret one is made, of the kind of the old one.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.
            secret: The new secret; None: one is made, of the kind of the newest one.
            grace: How long the old secrets sign alongside the new one.
            version: Only if the endpoint has this version; None: whatever it has.

        Returns:
            The endpoint as this change has written it, and the new secret: shown this once.

        Raises:
            InvalidValue: The secret is malformed, or a public key.
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version.
        """
        if secret is None:
            newest = (await self.secrets(tenant, endpoint_id))[0]
            chosen = generate_secret("v1a" if isinstance(newest, SigningKey) else "v1")
        else:
            chosen = _signing(secret)
        encrypted = self._cipher.encrypt(chosen.reveal())
        async with self._database.session() as session:
            changed = await self._written(session, _ROTATE, tenant, endpoint_id, encrypted, grace, version)
        return NewEndpoint(changed, chosen)

    async def secrets(self, tenant: str | None, endpoint_id: str) -> Sequence[Secret]:
        """
        What its deliveries are signed with now, the newest first.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.

        Raises:
            InvalidValue: The cipher is not the one that they were kept with.
            NotFound: The tenant has none of this id.
        """
        async with self._database.session() as session:
            rows = await session.fetch(_SECRETS, endpoint_id, tenant)
        if not rows:
            raise NotFound(f"there is no endpoint {endpoint_id!r:.80}", "unknown_endpoint")
        return [parse_secret(self._cipher.decrypt(row["secret"])) for row in rows]

    async def renew_secrets(self) -> int:
        """
        Store all secrets again, with the newest key of the cipher, so that older keys can be dropped.

        So are client certificates, secrets of OAuth, and the answers that the API keeps to requests with an
        ``Idempotency-Key``.

        Returns:
            How many secrets there are.

        Raises:
            InvalidValue: One cannot be read with this cipher; none is changed.
        """
        async with self._database.session() as session, session.transaction():
            rows = await session.fetch(_STORED)
            for row in rows:
                renewed = self._cipher.encrypt(self._cipher.decrypt(row["secret"]))
                await session.execute(_STORE, row["secret_id"], renewed)
            credentials = await self._renew_credentials(session)
            for row in await session.fetch(_ANSWERS):
                renewed = self._cipher.encrypt(self._cipher.decrypt(row["answer"]))
                await session.execute(_STORE_ANSWER, row["tenant"], row["key"], renewed)
        return len(rows) + credentials

    @staticmethod
    def _read(row: Row) -> Endpoint:
        """An endpoint from its row, whose JSON is text."""
        values = {name: row[name] for name in Endpoint.model_fields if name not in _CREDENTIALS}
        for name in ("filter", "headers", "policy"):
            values[name] = None if values[name] is None else json.loads(values[name])
        return Endpoint.model_validate(values | json.loads(row["credentials"] or "{}"))

    def _checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        checked = dict(settings)
        if "url" in settings:
            checked["url"] = checked_url(settings["url"], allow_http=self._allow_http, rules=self._rules)
        if "headers" in settings:
            checked["headers"] = checked_headers(settings["headers"])
        if "topics" in settings:
            checked["topics"] = endpoint_topics(settings["topics"], self._topics)
        if settings.get("filter") is not None:
            try:
                parse_filter(settings["filter"])
            except InvalidFilter as error:
                raise InvalidEndpoint(str(error)) from None
        return checked


def _signing(secret: Secret | str) -> Secret:
    parsed = parse_secret(secret) if isinstance(secret, str) else secret
    if isinstance(parsed, PublicKey):
        raise InvalidSecret("a public key (whpk_) signs nothing: give the private one (whsk_)")
    return parsed
