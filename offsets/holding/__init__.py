"""Who holds which slices: workers with a lease, and the ranges that are assigned to them."""

from offsets.holding.lease import LeaseSettings
from offsets.holding.workers import (
    Heartbeat,
    Held,
    RangeStatus,
    Registered,
    Worker,
    WorkerStatus,
    heartbeat,
    leave,
    read_ranges,
    set_ranges,
    take_over,
    workers,
)

__all__ = [
    "Heartbeat",
    "Held",
    "LeaseSettings",
    "RangeStatus",
    "Registered",
    "Worker",
    "WorkerStatus",
    "heartbeat",
    "leave",
    "read_ranges",
    "set_ranges",
    "take_over",
    "workers",
]
