"""What a soak runs: a read model, a record of what was handled, and webhooks for one event in ten."""

from __future__ import annotations

import json

from pydantic import BaseModel

from projections import Changes, EventEnvelope, Session, Table, handles, projection
from projections.webhooks import FanOut, Message

TENANT = "soak"
TOLD = 10
"""Of so many events one is sent as a webhook."""
COUNTS = Table("counts", key="source_id", increment="n", maximum="last")
TABLES = (
    "CREATE TABLE counts (source_id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0, last bigint)",
    """CREATE TABLE seen (
        n bigserial PRIMARY KEY, source_id text NOT NULL, seq_nr bigint NOT NULL,
        appended_at timestamptz NOT NULL, handled_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )""",
    "CREATE INDEX ON seen (handled_at)",
)


class Happened(BaseModel):
    n: int


@projection("counts", entity_type="plane")
class Counts:
    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
        return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)


@projection("seen", entity_type="plane")
class Seen:
    @handles(Happened)
    async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute(
            "INSERT INTO seen (source_id, seq_nr, appended_at) VALUES ($1, $2, $3)",
            envelope.source_id, envelope.seq_nr, envelope.db_timestamp,
        )  # fmt: skip


def _told(envelope: EventEnvelope) -> Message | None:
    if envelope.payload["n"] % TOLD:
        return None
    data = {"source_id": envelope.source_id, "seq_nr": envelope.seq_nr}
    return Message(TENANT, "happened", json.dumps(data), order_key=envelope.source_id)


fan_out = FanOut("plane", _told)
