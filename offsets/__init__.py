"""Offsets: where a projection stands, and what that says of an event."""

from offsets.errors import OffsetOvertaken, RangeLost, TransactionEnded, WrongEntityType
from offsets.live import live_events
from offsets.management import (
    ParkedSource,
    ProjectionStatus,
    UnknownProjection,
    clear_offset,
    decide_parked,
    names,
    parked,
    set_offset,
    set_paused,
    status,
)
from offsets.state import Batch, OffsetState, Verdict
from offsets.store import (
    Claim,
    OffsetStore,
    Parked,
    RangeStatus,
    Renewed,
    claim,
    evict,
    read_ranges,
    register,
    renew,
    set_ranges,
)

__all__ = [
    "Batch",
    "Claim",
    "OffsetOvertaken",
    "OffsetState",
    "OffsetStore",
    "Parked",
    "ParkedSource",
    "ProjectionStatus",
    "RangeLost",
    "RangeStatus",
    "Renewed",
    "TransactionEnded",
    "UnknownProjection",
    "Verdict",
    "WrongEntityType",
    "claim",
    "clear_offset",
    "decide_parked",
    "evict",
    "live_events",
    "names",
    "parked",
    "read_ranges",
    "register",
    "renew",
    "set_offset",
    "set_paused",
    "set_ranges",
    "status",
]
