"""
A PostgreSQL for people who have none: started on demand, shared by processes, out of reach of the network.

:func:`database_dsn` is the way in: it takes the DSN it is given, else ``PROJECTIONS_DSN``,
and only then starts an :class:`EmbeddedServer`.
"""

from journal.dsn import check_dsn
from journal.embedded.binaries import PROVIDERS, Binaries, find_binaries
from journal.embedded.default_database import DSN_VARIABLE, database_dsn
from journal.embedded.directories import HOME_VARIABLE, default_root
from journal.embedded.server import EmbeddedServer, binaries_for_user, temporary_server
from journal.errors import EmbeddedServerError

__all__ = [
    "DSN_VARIABLE",
    "HOME_VARIABLE",
    "PROVIDERS",
    "Binaries",
    "EmbeddedServer",
    "EmbeddedServerError",
    "binaries_for_user",
    "check_dsn",
    "database_dsn",
    "default_root",
    "find_binaries",
    "temporary_server",
]
