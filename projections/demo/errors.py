"""What can keep the demo from running."""

from journal import ProjectionsError


class DemoError(ProjectionsError):
    """The demo cannot run; the message says what to do."""


class DemoInterrupted(ProjectionsError):
    """The demo was asked to stop; a later run goes on from there."""
