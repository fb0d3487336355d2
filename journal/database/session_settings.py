"""Settings of PostgreSQL that sessions of the library have, whatever those of a role or a database are."""

from __future__ import annotations

from collections.abc import Mapping

ISOLATION = "READ COMMITTED"
"""Whatever a role's default is: later statements see what was committed since the first."""

PINNED: Mapping[str, str] = {"default_transaction_isolation": ISOLATION.lower()}
"""
What every session has, whatever its role's or its database's default is, by the beginning of the value that SHOW gives.

Sent at the start of a session of our own; behind a pooler, which lends another's, set again in each transaction where
it is needed.
"""

STARTED_WITH: Mapping[str, str] = {"jit": "off"}
"""
What sessions of our own have besides: what they run is over in milliseconds, and compiling it would take seconds.

Behind a pooler each transaction has it, and a statement alone has not: that would be slower, but not wrong.
"""

OF_A_FOREIGN_JOURNAL: Mapping[str, str] = {
    "search_path": "pg_catalog, pg_temp",  # first: what sets the others is looked up by it
    "default_transaction_read_only": "on",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""
What sessions have that read the journal of another system: they write nothing, walk its indexes, and run no function,
operator or cast of its owner's, whatever the role's search path has. Tables are named with their schema.

Our own journal is read by functions that set the like; statistics that lag behind must not decide how a page is read.
"""


def set_local(name: str, value: str) -> str:
    """The statement that sets one of those for a transaction; a value may be a list."""
    parts = ", ".join(f"'{part}'" for part in value.split(", "))
    return f"SET LOCAL {name} = {parts}"


NO_FUNCTION_OF_OTHERS = set_local("search_path", OF_A_FOREIGN_JOURNAL["search_path"])
"""For the rest of a transaction, find functions, operators and types of PostgreSQL's own only."""
