"""How far projections and groups are behind, who runs them, and what holds them back: from the database alone."""

from projections.monitoring.groups import (
    GroupLag,
    GroupRangeLag,
    GroupState,
    QuarantinedCondition,
    group_lag,
    quarantined_conditions,
    unmatched_entity_types,
)
from projections.monitoring.lag import (
    ProjectionLag,
    RangeLag,
    SliceLag,
    State,
    projection_lag,
)
from projections.monitoring.snapshot import OpenWriter, Snapshot, snapshot

__all__ = [
    "GroupLag",
    "GroupRangeLag",
    "GroupState",
    "OpenWriter",
    "ProjectionLag",
    "QuarantinedCondition",
    "RangeLag",
    "SliceLag",
    "Snapshot",
    "State",
    "group_lag",
    "projection_lag",
    "quarantined_conditions",
    "snapshot",
    "unmatched_entity_types",
]
