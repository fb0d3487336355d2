"""Errors of rebuilds."""

from __future__ import annotations

from journal import ProjectionsError


class RebuildError(ProjectionsError):
    """A rebuild did not come to its end; what serves is untouched."""


class NotRebuildable(RebuildError):
    """The projection, as it is defined, cannot be run as a batch."""


class RebuildUnderWay(RebuildError):
    """Another rebuild of this projection runs, or was begun with other settings and is unfinished."""


BEGIN_AGAIN = "Running it again would meet this again; to begin again from the first event, add --restart"
"""For errors of what was built, which stays to be gone on with."""


class RebuildFailed(RebuildError):
    """The new read model could not be built, or is not what the journal says."""


class SwapRefused(RebuildError):
    """The new read model cannot take its place."""
