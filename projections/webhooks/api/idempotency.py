"""
Databases as requests see them: with limited statements; and with an ``Idempotency-Key`` in one transaction.

Such a request is followed once, and answered the same whenever it is asked again.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from journal import Database, OwnedSession, Session
from projections.webhooks.api.json_text import write_json
from projections.webhooks.api.operations import Call, Operation, Services
from projections.webhooks.api.problems import Problem
from projections.webhooks.encryption import Cipher
from projections.webhooks.errors import own_errors

KEPT_FOR = timedelta(hours=24)
_AGAIN_AFTER = {"retry-after": "1"}
_LIMIT = "SELECT set_config('statement_timeout', $1, TRUE)"
_RECALL = "SELECT free, answer FROM projections._recall_answer_v1($1, $2)"
_KEEP = "SELECT projections._keep_answer_v1($1, $2, $3, $4, $5)"


class _Borrowed(ABC):
    """A :class:`journal.Database` each of whose sessions is a transaction; it is its owner's to close."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def dsn(self) -> str:
        """That of the pool."""
        return self._database.dsn

    @property
    def max_connections(self) -> int:
        """How many sessions can be lent at a time."""
        return self._database.max_connections

    @abstractmethod
    def session(self) -> AbstractAsyncContextManager[OwnedSession]:
        """Lend a session with an open transaction."""

    def transaction(self) -> AbstractAsyncContextManager[OwnedSession]:
        """Lend such a session."""
        return self.session()

    def listen(self, channel: str, heard: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Listen as the pool does."""
        return self._database.listen(channel, heard)

    async def renew(self) -> None:
        """Replace the connections of the pool."""
        await self._database.renew()

    async def close(self) -> None:  # noqa: B027 - that is all that it does
        """Leave the pool open."""


class LimitedDatabase(_Borrowed):
    """
    One whose statements are given up after a time: ``statement_timeout``.

    The setting goes with the transaction, so that it works behind PgBouncer too.
    """

    def __init__(self, database: Database, longest: timedelta) -> None:
        super().__init__(database)
        self._idle = longest
        self._longest = f"{longest // timedelta(milliseconds=1)}ms"

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        """Lend a session with an open transaction: commits at the end, rolls back on an error."""
        # Nor does a process that is frozen or cut off hold its locks for longer.
        async with self._database.session() as session, session.transaction(idle=self._idle):
            await session.execute(_LIMIT, self._longest)
            yield session


class _LentDatabase(_Borrowed):
    """One that lends the same session, whose transaction is open and ends elsewhere."""

    def __init__(self, database: Database, session: OwnedSession) -> None:
        super().__init__(database)
        self._session = session

    @property
    def max_connections(self) -> int:
        return 1

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        yield self._session


class StoredAnswer(NamedTuple):
    """What a request that was followed is answered; its status is the operation's."""

    text: str | None
    """JSON; None: an empty answer."""
    headers: Mapping[str, str]


class Once:
    """
    Follows requests; those with an ``Idempotency-Key`` once.

    The key, what the request does, and its answer are written in one transaction: whatever fails or dies on the way
    has done nothing, and is followed when it is asked again. Answers are kept encrypted: they may hold new secrets.
    """

    def __init__(
        self, database: LimitedDatabase, services: Callable[[Database], Services], cipher: Cipher
    ) -> None:
        self._database = database
        self._services = services
        self._cipher = cipher

    async def follow(self, operation: Operation, call: Call[Any, Any]) -> StoredAnswer:
        """
        Follow a request, unless it was followed before; NotAllowed: the tenant has used up its keys.

        Problem: its key was used for another request, or one with this key is being followed just now.
        """
        if operation.method != "POST" or operation.own_key or call.key is None:
            return await _followed(operation, call)
        digest = _digest(operation, call)
        async with self._database.session() as session:
            before = await self._recalled(session, call, digest)
            if before is not None:
                return before
            services = self._services(_LentDatabase(self._database, session))
            answer = await _followed(operation, replace(call, services=services))
            await self._keep(session, call, digest, answer)
        return answer

    async def _recalled(self, session: Session, call: Call[Any, Any], digest: str) -> StoredAnswer | None:
        row = await session.fetchrow(_RECALL, call.caller.tenant or "", call.key)
        assert row is not None  # noqa: S101 - the function returns one row
        if not row["free"]:
            raise Problem(
                409, "request_in_progress", "a request with this idempotency-key is being followed just now",
                headers=_AGAIN_AFTER,
            )  # fmt: skip
        if row["answer"] is None:
            return None
        stored = json.loads(self._cipher.decrypt(row["answer"]))
        if stored["digest"] != digest:
            raise Problem(409, "key_conflict", "the idempotency-key was used before, for another request")
        return StoredAnswer(stored["text"], stored["headers"])

    async def _keep(self, session: Session, call: Call[Any, Any], digest: str, answer: StoredAnswer) -> None:
        stored = self._cipher.encrypt(json.dumps({"digest": digest, **answer._asdict()}))
        at_most = call.at_most(call.services.settings.keys_per_tenant)
        with own_errors():
            await session.fetchval(_KEEP, call.caller.tenant or "", call.key, stored, KEPT_FOR, at_most)


async def _followed(operation: Operation, call: Call[Any, Any]) -> StoredAnswer:
    answer = await operation.handler(call)
    return (
        StoredAnswer(None, {})
        if answer is None
        else StoredAnswer(write_json(answer), operation.headers(answer))
    )


def _digest(operation: Operation, call: Call[Any, Any]) -> str:
    """What two requests have in common that ask for the same. It is kept encrypted: a body may hold secrets."""
    asked = (
        operation.name,
        dict(call.place),
        call.query.model_dump_json(),
        call.headers.get("if-match"),
        call.body.model_dump_json(exclude_unset=True, exclude=set(operation.raw)),
        {name: str(text) for name, text in call.raw.items()},
    )
    return sha256(json.dumps(asked).encode()).hexdigest()
