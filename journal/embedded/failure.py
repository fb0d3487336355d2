"""The error of everything around the embedded server."""

from __future__ import annotations

from journal.errors import ProjectionsError

__all__ = ["EmbeddedServerError"]


class EmbeddedServerError(ProjectionsError):
    """The embedded PostgreSQL can not be found, made, started or stopped; the message says what to do."""
