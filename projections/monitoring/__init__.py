"""How far projections are behind, who runs them, and what holds them back: from the database alone."""

from typing import TYPE_CHECKING

from journal import InvalidValue, NotFound, ProjectionsError
from projections.lazy import lazy_names
from projections.monitoring.lag import ProjectionLag as ProjectionLag
from projections.monitoring.lag import RangeLag as RangeLag
from projections.monitoring.lag import SliceLag as SliceLag
from projections.monitoring.lag import projection_lag
from projections.monitoring.lag import projection_lags as projection_lags
from projections.monitoring.measures import Durations as Durations
from projections.monitoring.measures import Measure as Measure
from projections.monitoring.measures import MetricTable as MetricTable
from projections.monitoring.measures import measures as measures
from projections.monitoring.measures import single as single
from projections.monitoring.registration import Action as Action
from projections.monitoring.registration import Monitored as Monitored
from projections.monitoring.registration import Observed as Observed
from projections.monitoring.registration import Place as Place
from projections.monitoring.registration import Ranges as Ranges
from projections.monitoring.registration import Text as Text
from projections.monitoring.registration import Vacancy as Vacancy
from projections.monitoring.snapshot import OpenWriter as OpenWriter
from projections.monitoring.snapshot import Snapshot as Snapshot
from projections.monitoring.snapshot import snapshot
from projections.monitoring.under_way import rebuilds_under_way as rebuilds_under_way
from projections.monitoring.vacancies import vacancies as vacancies
from projections.monitoring.web.snapshot_json import DEAD_LISTED as DEAD_LISTED
from projections.monitoring.web.snapshot_json import LISTED as LISTED
from projections.monitoring.web.snapshot_json import bounds as bounds
from projections.monitoring.web.snapshot_json import seconds as seconds
from projections.monitoring.web.snapshot_json import shown as shown

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
