"""Erasing what messages say, while it stays on record that they were sent, and how their deliveries ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from journal import Database, NotFound
from projections.webhooks.checks import check_time
from projections.webhooks.messages import message_uuid
from projections.webhooks.tenant_rows import call

_ERASE = "SELECT erased, in_flight, gone FROM projections._erase_messages_v1($1, $2)"
_ERASE_MANY = "SELECT * FROM projections._erase_many_messages_v1($1, $2, $3, $4, $5, $6, $7, $8)"
_STEP = 1000


class Erased(NamedTuple):
    """What was erased."""

    messages: int
    """How many, so far."""
    in_flight: int
    """Attempts at them that had begun: these have the payload, and may still arrive."""
    gone: int = 0
    """How many the journal has no more: an archive may have them until ``projections archive erase``."""


class Erasing:
    """How :class:`Deliveries` erases messages."""

    _database: Database

    async def erase(self, tenant: str | None, message_id: UUID | str) -> Erased:
        """
        Erase what a message says: its payload, and what endpoints answered to it. Its record stays.

        Deliveries of it that are not made are ``erased``, and cannot be tried again. The payload of a message of
        :func:`send` is erased in the journal, too; that of an event of yours is not. Erasing it again changes nothing.
        A message whose partition has left the journal does not come back from an archive with its payload.

        Args:
            tenant: The tenant of the message; None is for administrators.
            message_id: The ``webhook-id``, or with a tenant the ``message_id`` that it was sent under.

        Raises:
            NotFound: Neither the journal nor the log has such a message of the tenant. Should an archive have it, it
                is erased there as any other.
        """
        event_id = str(message_id if tenant is None else message_uuid(tenant, message_id))
        async with self._database.session() as session, session.transaction():
            row = await call(session, _ERASE, tenant, [event_id, str(message_id)])
        if not row["erased"]:
            raise NotFound(
                f"there is no message {str(message_id)!r:.80} in the journal or the log; if an archive has it, it does "
                "not come back with its payload, and `projections archive erase` erases it there",
                "unknown_message",
            )
        return Erased(1, row["in_flight"], row["gone"])

    async def erase_many(
        self,
        tenant: str,
        *,
        order_key: str | None = None,
        topics: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int = _STEP,
    ) -> AsyncIterator[Erased]:
        """
        Erase what many messages of a tenant say, of those that fan-out has read and the log keeps.

        Each step is a transaction of its own; ending early leaves the rest as it is.

        Args:
            tenant: The tenant of the messages.
            order_key: Only those with this ``order_key``; of events of your own, of this source.
            topics: Only those of these topics.
            since: Only those from then on.
            until: Only those before then.
            step: How many messages, or deliveries, one transaction looks at.

        Yields:
            What is erased so far, after each step.

        Raises:
            InvalidValue: A time has no zone.
        """
        check_time("since", since)
        check_time("until", until)
        messages, in_flight, gone = 0, 0, 0
        place: tuple[datetime | None, str] | None = (None, "")
        named = None if topics is None else list(topics)
        while place is not None:
            async with self._database.session() as session, session.transaction():
                row = await call(
                    session, _ERASE_MANY, tenant, order_key, named, since, until, *place, step,
                )  # fmt: skip
            messages, in_flight = messages + row["erased"], in_flight + row["in_flight"]
            gone += row["gone"]
            place = None if row["last_time"] is None else (row["last_time"], row["last_id"])
            yield Erased(messages, in_flight, gone)
