"""
Noticing that the other end of a connection is gone: a fail-over, or a firewall that has forgotten it, says nothing.

Without this, a statement on such a connection waits for the kernel's own limit, about a quarter of an hour.
"""

from __future__ import annotations

import socket

IDLE = 5
"""Seconds of silence before the other end is asked whether it is there."""
INTERVAL = 2
COUNT = 3
UNANSWERED = 10
"""Seconds after which what was sent and not acknowledged ends the connection (Linux)."""

_OPTIONS = {
    "TCP_KEEPIDLE": IDLE,
    "TCP_KEEPINTVL": INTERVAL,
    "TCP_KEEPCNT": COUNT,
    "TCP_USER_TIMEOUT": 1000 * UNANSWERED,
}


def keep_alive(connected: socket.socket) -> None:
    """Set the limits on a connected socket, as far as the platform has them; Unix sockets need none."""
    if connected.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


LIBPQ = {
    "keepalives_idle": IDLE,
    "keepalives_interval": INTERVAL,
    "keepalives_count": COUNT,
    "tcp_user_timeout": 1000 * UNANSWERED,
}
"""The same in libpq's words."""
