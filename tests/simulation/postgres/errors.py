"""What the server answers instead of rows, and what a client sees of a broken connection."""

from __future__ import annotations


class ServerError(Exception):
    """
    An error that the server reports.

    Args:
        sqlstate: Its code.
        message: Its text.
        detail: What is said besides.
        fatal: Whether the server ends the connection with it.
    """

    def __init__(
        self, sqlstate: str, message: str, detail: str | None = None, *, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.detail = detail
        self.fatal = fatal
        self.in_transaction = False
        """Whether the client is still in a transaction, which is spoilt."""


class ConnectionLost(ConnectionResetError):
    """The connection is gone; whether the server has done what it was asked is not known."""


class NotModelled(AssertionError):
    """The model of the server does not know a statement, or an argument of it: extend the model."""
