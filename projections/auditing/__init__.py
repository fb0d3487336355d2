"""Auditing: whether everything that was committed was handled, once and in order."""

from projections.auditing.history import KINDS, Audit, Finding, History, InvalidHistory, Kind

__all__ = ["KINDS", "Audit", "Finding", "History", "InvalidHistory", "Kind"]
