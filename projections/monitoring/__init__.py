"""How far projections are behind, who runs them, and what holds them back: from the database alone."""

from typing import TYPE_CHECKING

from journal import InvalidValue, NotFound, ProjectionsError
from projections.lazy import lazy_names
from projections.monitoring.lag import ProjectionLag as ProjectionLag
from projections.monitoring.lag import RangeLag as RangeLag
from projections.monitoring.lag import SliceLag as SliceLag
from projections.monitoring.lag import projection_lag
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
    "InvalidValue",
    "NotFound",
    "ProjectionsError",
    "projection_lag",
    "snapshot",
]
