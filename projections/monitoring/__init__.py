"""How far projections are behind, who runs them, and what holds them back: from the database alone."""

from projections.monitoring.lag import (
    ProjectionLag,
    RangeLag,
    SliceLag,
    State,
    projection_lag,
)
from projections.monitoring.snapshot import OpenWriter, Snapshot, snapshot

__all__ = [
    "OpenWriter",
    "ProjectionLag",
    "RangeLag",
    "SliceLag",
    "Snapshot",
    "State",
    "projection_lag",
    "snapshot",
]
