"""Client certificates and clients of OAuth of endpoints, as they are set, read and taken away."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel

from journal import Database
from projections.webhooks.addresses import AddressRules
from projections.webhooks.credentials import Credentials, OAuthFacts, credentials_of, read_certificate
from projections.webhooks.encryption import Cipher
from projections.webhooks.errors import InvalidSecret
from projections.webhooks.tenant_rows import call
from projections.webhooks.urls import checked_url

FACTS_COLUMN = """
(SELECT json_object_agg(c.kind, c.facts)::text FROM projections.webhook_credentials AS c (of_endpoint, kind, facts)
WHERE c.of_endpoint = endpoint_id) AS credentials
"""
_READ = """
SELECT json_object_agg(c.kind, json_build_object('facts', c.facts, 'secret', c.secret))::text
FROM projections.webhook_credentials AS c INNER JOIN projections.webhook_endpoints AS e ON c.endpoint_id = e.endpoint_id
WHERE c.endpoint_id = $1 AND ($2::text IS NULL OR e.tenant = $2)
"""
_SET = "SELECT version FROM projections._set_credential_v1($1, $2, $3, $4::text::json, $5, $6)"
_STORED = "SELECT endpoint_id, kind, secret FROM projections.webhook_credentials ORDER BY endpoint_id, kind FOR UPDATE"
_STORE = "UPDATE projections.webhook_credentials SET secret = $3 WHERE endpoint_id = $1 AND kind = $2"
_LONGEST_SECRET = 4096


class _Credential(NamedTuple):
    """What is stored of one; nothing takes it away."""

    kind: str
    facts: BaseModel | None = None
    secret: str | None = None


class EndpointCredentials:
    """What :class:`Endpoints` does with them."""

    _database: Database
    _cipher: Cipher
    _rules: AddressRules
    _allow_http: bool

    async def set_certificate(
        self, tenant: str | None, endpoint_id: str, pem: str | None, *, version: int | None = None
    ) -> int:
        """
        Have TLS show a client certificate from the next claim on, in place of the one before.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.
            pem: The certificate, then its chain, and its key, which is not encrypted; None takes it away.
            version: Only if the endpoint has this version; None: whatever it has.

        Returns:
            The version of the endpoint, which this has changed.

        Raises:
            InvalidValue: It cannot be read, is too large, has expired, or the key is of another one or too weak.
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version.
        """
        if pem is None:
            return await self._set(tenant, endpoint_id, version, _Credential("certificate"))
        facts, certificate = read_certificate(pem)
        return await self._set(
            tenant, endpoint_id, version, _Credential("certificate", facts, certificate.pem)
        )

    async def set_oauth(
        self,
        tenant: str | None,
        endpoint_id: str,
        facts: OAuthFacts | None,
        secret: str = "",
        *,
        version: int | None = None,
    ) -> int:
        """
        Send an access token with each request, from the next claim on: had by client credentials, and kept.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.
            facts: Where tokens are had, and the client; None takes it away.
            secret: The client's secret, up to 4,096 characters of printable ASCII.
            version: Only if the endpoint has this version; None: whatever it has.

        Returns:
            The version of the endpoint, which this has changed.

        Raises:
            InvalidValue: The token URL may not be asked, or the secret cannot be.
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version.
        """
        if facts is None:
            return await self._set(tenant, endpoint_id, version, _Credential("oauth"))
        if not 1 <= len(secret) <= _LONGEST_SECRET or not secret.isascii() or not secret.isprintable():
            raise InvalidSecret(
                f"a client's secret is 1 to {_LONGEST_SECRET:,} characters of printable ASCII"
            )
        url = checked_url(facts.token_url, allow_http=self._allow_http, rules=self._rules)
        checked = facts.model_copy(update={"token_url": url})
        return await self._set(tenant, endpoint_id, version, _Credential("oauth", checked, secret))

    async def credentials(self, tenant: str | None, endpoint_id: str) -> Credentials:
        """
        What requests to an endpoint identify themselves with.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint's id.

        Raises:
            InvalidValue: The cipher is not the one that they were kept with.
        """
        async with self._database.session() as session:
            return credentials_of(await session.fetchval(_READ, endpoint_id, tenant), self._cipher)

    async def _renew_credentials(self, session: Any) -> int:
        rows = await session.fetch(_STORED)
        for row in rows:
            renewed = self._cipher.encrypt(self._cipher.decrypt(row["secret"]))
            await session.execute(_STORE, row["endpoint_id"], row["kind"], renewed)
        return len(rows)

    async def _set(
        self, tenant: str | None, endpoint_id: str, version: int | None, credential: _Credential
    ) -> int:
        kind, facts, secret = credential
        stored = None if secret is None else self._cipher.encrypt(secret)
        shown = None if facts is None else facts.model_dump_json()
        async with self._database.session() as session:
            row = await call(session, _SET, tenant, endpoint_id, kind, shown, stored, version)
        return int(row["version"])
