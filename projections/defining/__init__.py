"""Defining projections: handlers, table handlers, and finding those of an application."""

from projections.defining.batching import AtLeastOnce as AtLeastOnce
from projections.defining.batching import ExactlyOnce as ExactlyOnce
from projections.defining.batching import Group as Group
from projections.defining.folding import Batch as Batch
from projections.defining.folding import Folded as Folded
from projections.defining.handlers import Discovery as Discovery
from projections.defining.handlers import Kind as Kind
from projections.defining.handlers import Projection as Projection
from projections.defining.handlers import handles as handles
from projections.defining.handlers import handles_group as handles_group
from projections.defining.handlers import projection as projection
from projections.defining.handlers import projection_of as projection_of
from projections.defining.handlers import reacts as reacts
from projections.defining.read_models import SqlReadModel as SqlReadModel
from projections.defining.read_models import events as events
from projections.defining.read_models import read_model as read_model
from projections.defining.sql_fields import quote_literal as quote_literal
from projections.defining.sql_rendering import BATCH as BATCH
from projections.defining.sql_rendering import UPCAST_BATCH as UPCAST_BATCH
from projections.defining.sql_rendering import ReadModelQuery as ReadModelQuery
from projections.defining.sql_rendering import create_table as create_table
from projections.defining.tables import Change as Change
from projections.defining.tables import Changes as Changes
from projections.defining.tables import ColumnOperation as ColumnOperation
from projections.defining.tables import Table as Table
from projections.defining.tables import TableError as TableError
