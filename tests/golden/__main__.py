"""
Renews the golden recordings, and prints what has changed: ``python -m tests.golden``.

``--check`` only compares; the exit code is then 1 where something differs.
"""

from __future__ import annotations

import argparse
import logging
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.fixtures.postgres import Databases, Run, install_for_tests
from tests.golden.kinds import KINDS
from tests.golden.recordings import Fresh, difference, record, recorded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"which: {', '.join(KINDS)}; default: all")
    parser.add_argument("--check", action="store_true", help="only compare")
    chosen = parser.parse_args()
    if unknown := {*chosen.kinds} - KINDS.keys():
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    logging.disable()  # of the handlers that fail on purpose
    changed = []
    with fresh_databases() as fresh:
        for kind in chosen.kinds or KINDS:
            files = KINDS[kind](fresh)
            found = difference(recorded(kind), files) if chosen.check else record(kind, files)
            sys.stdout.write(found)
            changed += [kind] if found else []
    did = "differ from" if chosen.check else "were changed in"
    print(f"{', '.join(changed) or 'no kinds'} {did} tests/golden/recorded")
    return 1 if chosen.check and changed else 0


@contextmanager
def fresh_databases() -> Iterator[Fresh]:
    """Databases on a temporary server of their own, as the tests have them."""
    run = Run("embedded", uuid.uuid4().hex[:10], "")
    server = run.server()
    try:
        with server as dsn, psycopg.connect(dsn, autocommit=True) as connection:
            databases = Databases(run, dsn, connection, "golden")
            template = databases.ensure_template(install_for_tests)
            yield lambda: databases.fresh(template)
            databases.close()
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
