"""Calls of operations, within the limits of who asks: those of HTTP requests, and those of the page for tenants."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from journal import Database
from projections.webhooks.addresses import AddressRules
from projections.webhooks.api.idempotency import LimitedDatabase, Once, StoredAnswer
from projections.webhooks.api.operations import Call, Operation, Services
from projections.webhooks.api.settings import ApiSettings
from projections.webhooks.api.tenant_limits import TenantLimits
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.egress import EgressProxy, proxy_from_environment
from projections.webhooks.encryption import Cipher, PlainCipher
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.log import PostgresLog
from projections.webhooks.schedules import Schedules
from projections.webhooks.topics import Topic


class ApiCalls:
    """
    Follows calls; those with an ``Idempotency-Key`` once.

    Args:
        database: The database that stores endpoints, deliveries and the log.
        settings: Limits of sizes, times and tenants.
        cipher: How secrets are kept; None: as they are.
        rules: Which addresses endpoints may be at; None: public ones.
        allow_http: Let endpoints without TLS through, too.
        topics: Those that there are; None: whatever one asks for.
        proxy: Challenges go through it; None: that of ``PROJECTIONS_WEBHOOK_PROXY``, or else directly.
    """

    def __init__(
        self,
        database: Database,
        settings: ApiSettings,
        *,
        cipher: Cipher | None,
        rules: AddressRules | None,
        allow_http: bool,
        topics: Collection[str | Topic] | None,
        proxy: EgressProxy | str | None = None,
    ) -> None:
        limited = LimitedDatabase(database, settings.statement_timeout)
        kept, reached = cipher or PlainCipher(), rules or AddressRules()
        way_out = EgressProxy(proxy) if isinstance(proxy, str) else proxy or proxy_from_environment()
        allowances = TenantLimits(settings.tenant_rate, settings.challenge_pause, limited)

        def services(database: Database) -> Services:
            endpoints = Endpoints(database, kept, reached, allow_http=allow_http, topics=topics)
            return Services(
                database, endpoints, Schedules(database), Deliveries(database), PostgresLog(database), settings,
                allowances, reached, way_out, tuple(topics or ()),
            )  # fmt: skip

        self.services = services(limited)
        self._once = Once(limited, services, kept)

    async def follow(self, operation: Operation, call: Call[Any, Any]) -> StoredAnswer:
        """Follow a call; Problem, or the error of what it asks for: it is refused."""
        async with self.services.allowances.place(call.caller.tenant):
            return await self._once.follow(operation, call)
