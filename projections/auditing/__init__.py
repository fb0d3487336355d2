"""Auditing: whether everything that was committed was handled, once and in order."""

from projections.auditing.history import KINDS as KINDS
from projections.auditing.history import Audit as Audit
from projections.auditing.history import Finding as Finding
from projections.auditing.history import History as History
from projections.auditing.history import InvalidHistory as InvalidHistory
from projections.auditing.history import Kind as Kind
from projections.auditing.reading import Waiting as Waiting
from projections.auditing.reading import committed_in as committed_in
from projections.auditing.reading import handled_in as handled_in
from projections.auditing.reading import lines_of as lines_of
from projections.auditing.reading import parked_at as parked_at
from projections.auditing.reading import query as query
from projections.auditing.reading import tell_journal as tell_journal
