"""A PostgreSQL that ends with its input, whatever ends the holder of that: ``python -m tests.mutants.server``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from journal.embedded import EmbeddedServer
from tests.fixtures.postgres import SETTINGS
from tests.mutants.layers import ROOT, Broken


@contextmanager
def running_server() -> Iterator[str]:
    """
    A server of its own for the length of the block; gives its DSN.

    Raises:
        Broken: It did not start.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.server"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        if not (dsn := process.stdout.readline().strip()):
            raise Broken("the server did not start")
        yield dsn


def main() -> None:
    """Tell the DSN, and serve until the end of the input."""
    with tempfile.TemporaryDirectory(prefix="slice-projections-mutants-") as base:
        Path(base).chmod(0o711)  # the server may run as another user, who passes through
        server = EmbeddedServer(Path(base, "server"), SETTINGS)
        try:
            with server as dsn:
                print(dsn, flush=True)
                sys.stdin.read()
        finally:
            server.remove()


if __name__ == "__main__":
    main()
