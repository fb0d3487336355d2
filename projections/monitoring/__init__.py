"""How far projections and groups are behind, who runs them, and what holds them back: from the database alone."""

from projections.monitoring.groups import (
    GroupLag,
    GroupRangeLag,
    GroupState,
    QuarantinedCondition,
    events_set_apart,
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
    projection_lags,
)
from projections.monitoring.snapshot import OpenWriter, Snapshot, snapshot
from projections.monitoring.webhooks import (
    DeadDelivery,
    WebhookTotals,
    dead_deliveries,
    webhook_totals,
)

__all__ = [
    "DeadDelivery",
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
    "WebhookTotals",
    "dead_deliveries",
    "events_set_apart",
    "group_lag",
    "projection_lag",
    "projection_lags",
    "quarantined_conditions",
    "snapshot",
    "unmatched_entity_types",
    "webhook_totals",
]
