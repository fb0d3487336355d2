"""The schema ``projections``: installed, upgraded, checked and removed."""

from journal.schema.installing import Contents, contents, install, script, uninstall, upgrade
from journal.schema.verifying import verify
from journal.schema.version import SCHEMA_VERSION, check_version, compare_version, installed_version
from journal.sql_files import sql_root

__all__ = [
    "SCHEMA_VERSION",
    "Contents",
    "check_version",
    "compare_version",
    "contents",
    "install",
    "installed_version",
    "script",
    "sql_root",
    "uninstall",
    "upgrade",
    "verify",
]
