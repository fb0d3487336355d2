"""The schema ``projections``: installed, upgraded, checked and removed."""

from journal.schema.installing import (
    SCHEMA_VERSION,
    Contents,
    check_version,
    compare_version,
    contents,
    install,
    installed_version,
    script,
    uninstall,
    upgrade,
    verify,
)
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
