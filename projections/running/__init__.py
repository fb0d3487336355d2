"""Running projections: workers, the ranges that they hold, and what is done with each batch."""

from projections.running.blame import comes_from_outside as comes_from_outside
from projections.running.dispatch import Dispatcher as Dispatcher
from projections.running.event_loop import loop_runner as loop_runner
from projections.running.inline import Inline as Inline
from projections.running.loop_monitor import ABORTED as ABORTED
from projections.running.loop_monitor import LoopMonitor as LoopMonitor
from projections.running.observer import Combined as Combined
from projections.running.observer import Observers as Observers
from projections.running.observer import Pulse as Pulse
from projections.running.observer import StatusObserver as StatusObserver
from projections.running.page_limit import PageLimit as PageLimit
from projections.running.read_model_writer import ReadModelPlan as ReadModelPlan
from projections.running.read_model_writer import ReadModelWriter as ReadModelWriter
from projections.running.read_model_writer import mark_table as mark_table
from projections.running.runner import run as run
from projections.running.settings import ABORT_AFTER as ABORT_AFTER
from projections.running.settings import OTHER_CONNECTIONS as OTHER_CONNECTIONS
from projections.running.settings import WORKER_CONNECTIONS as WORKER_CONNECTIONS
from projections.running.settings import RunSettings as RunSettings
from projections.running.table_catalogue import Shape as Shape
from projections.running.table_catalogue import read_shape as read_shape
from projections.running.table_values import Column as Column
from projections.running.table_values import ValueKind as ValueKind
from projections.running.table_writer import BatchWriter as BatchWriter
from projections.running.table_writer import TableWriter as TableWriter
from projections.running.table_writer import encode_column as encode_column
