"""How far projections and groups are behind, who runs them, and what holds them back: from the database alone."""

from typing import TYPE_CHECKING

from journal import ProjectionsError
from offsets import UnknownProjection
from projections.errors import UnknownGroup
from projections.lazy import lazy_names
from projections.monitoring.groups import GroupLag as GroupLag
from projections.monitoring.groups import GroupRangeLag as GroupRangeLag
from projections.monitoring.groups import QuarantinedCondition as QuarantinedCondition
from projections.monitoring.groups import (
    group_lag,
)
from projections.monitoring.groups import unmatched_entity_types as unmatched_entity_types
from projections.monitoring.history import HistoryProgress as HistoryProgress
from projections.monitoring.history import history_progress as history_progress
from projections.monitoring.lag import ProjectionLag as ProjectionLag
from projections.monitoring.lag import RangeLag as RangeLag
from projections.monitoring.lag import SliceLag as SliceLag
from projections.monitoring.lag import (
    projection_lag,
)
from projections.monitoring.lag import projection_lags as projection_lags
from projections.monitoring.snapshot import OpenWriter as OpenWriter
from projections.monitoring.snapshot import Snapshot as Snapshot
from projections.monitoring.snapshot import snapshot

if TYPE_CHECKING:  # those need an extra
    from projections.monitoring.probes import serve_metrics as serve_metrics
    from projections.monitoring.tracing import Tracing as Tracing
    from projections.monitoring.worker_metrics import WorkerMetrics as WorkerMetrics

__all__, __getattr__, __dir__ = lazy_names()
__all__ += [
    "ProjectionsError",
    "UnknownGroup",
    "UnknownProjection",
    "group_lag",
    "projection_lag",
    "snapshot",
]
