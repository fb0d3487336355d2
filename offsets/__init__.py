"""Offsets: where a projection stands, and what that says of an event."""

from pathlib import Path
from runpy import run_path

# Before the first import of what may be a package of the application; an installation without sources goes unchecked.
if (_check := Path(__file__).parent.parent / "journal" / "import_names.py").exists():
    run_path(str(_check))["check_import_names"]("journal")

from offsets.annals import NotedReadModel as NotedReadModel
from offsets.annals import RangeChange as RangeChange
from offsets.annals import note_read_models as note_read_models
from offsets.annals import range_changes as range_changes
from offsets.annals import read_models as read_models
from offsets.deduplication import BatchVerdicts as BatchVerdicts
from offsets.deduplication import OffsetState as OffsetState
from offsets.deduplication import Verdict as Verdict
from offsets.errors import MoveRefused as MoveRefused
from offsets.errors import OffsetOvertaken as OffsetOvertaken
from offsets.errors import ProjectionRuns as ProjectionRuns
from offsets.errors import RangeLost as RangeLost
from offsets.errors import TransactionEnded as TransactionEnded
from offsets.errors import WrongEntityType as WrongEntityType
from offsets.errors import WrongJournal as WrongJournal
from offsets.errors import own_errors as own_errors
from offsets.horizons import Progress as Progress
from offsets.horizons import save_horizons as save_horizons
from offsets.leases import Heartbeat as Heartbeat
from offsets.leases import Held as Held
from offsets.leases import RangeStatus as RangeStatus
from offsets.leases import Registered as Registered
from offsets.leases import Worker as Worker
from offsets.leases import WorkerStatus as WorkerStatus
from offsets.leases import heartbeat as heartbeat
from offsets.leases import leave as leave
from offsets.leases import runs as runs
from offsets.leases import take_over as take_over
from offsets.leases import workers as workers
from offsets.live import live_events as live_events
from offsets.lost_events import AheadOfJournal as AheadOfJournal
from offsets.lost_events import ahead_in as ahead_in
from offsets.lost_events import fit_journal as fit_journal
from offsets.management import Mode as Mode
from offsets.management import ProjectionStatus as ProjectionStatus
from offsets.management import Removed as Removed
from offsets.management import clear_offset as clear_offset
from offsets.management import entity_types_of as entity_types_of
from offsets.management import known as known
from offsets.management import named_log as named_log
from offsets.management import names as names
from offsets.management import refuse_several as refuse_several
from offsets.management import remove as remove
from offsets.management import rescale as rescale
from offsets.management import set_mode as set_mode
from offsets.management import set_offset as set_offset
from offsets.management import set_paused as set_paused
from offsets.management import status as status
from offsets.management import statuses as statuses
from offsets.moving import Moved as Moved
from offsets.moving import take_over_offsets as take_over_offsets
from offsets.parked import ParkedSource as ParkedSource
from offsets.parked import ParkedSources as ParkedSources
from offsets.parked import parked_places as parked_places
from offsets.standings import KEPT as KEPT
from offsets.standings import Elsewhere as Elsewhere
from offsets.standings import Framework as Framework
from offsets.standings import Standing as Standing
from offsets.standings import at_position as at_position
from offsets.standings import standing as standing
from offsets.store import HANDLED as HANDLED
from offsets.store import Beats as Beats
from offsets.store import Claim as Claim
from offsets.store import OffsetStore as OffsetStore
from offsets.store import Parked as Parked
from offsets.store import claim_again as claim_again
from offsets.store import evict as evict
from offsets.store import notify_handled as notify_handled
from offsets.store import read_offsets as read_offsets
from offsets.store import register as register
from offsets.summaries import ProjectionSummary as ProjectionSummary
from offsets.summaries import RangesAlike as RangesAlike
from offsets.summaries import summaries as summaries
from offsets.verification import misfits as misfits
from offsets.watermarks import ages as ages
from offsets.watermarks import note_watermark as note_watermark
