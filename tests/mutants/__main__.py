"""
Seeds one bug after the other, and runs the layers of the proof that must find it: ``python -m tests.mutants``.

Ends with 1 when a bug is not found, or when what should find it fails without it; with 2 where it cannot tell.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journal.embedded import EmbeddedServer
from tests.fixtures.postgres import SETTINGS
from tests.models.spin import missing
from tests.mutants.catalogue import all_mutants
from tests.mutants.layers import Broken, Pytest
from tests.mutants.mutant import Layer, Mutant
from tests.mutants.page import PAGE, renewed


@dataclass(frozen=True, slots=True)
class Look:
    """What came of one layer that looked for one bug."""

    mutant: Mutant
    layer: Layer
    found: str | None
    seconds: float

    def __str__(self) -> str:
        what = f"found: {self.found}" if self.found is not None else "NOT FOUND"
        return f"{self.mutant.name}, {self.layer.name}: {what} ({self.seconds:.0f} s)"


def main(given: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _arguments(given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it leaves no server behind either
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        chosen = _chosen(asked.only, asked.layer)
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if asked.page:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if asked.list:
        print("\n".join(dict.fromkeys(f"{one.name}: {one.wrong}" for one, _ in chosen)))
        return 0
    try:
        return _run(chosen, as_json=asked.json)
    except Broken as error:
        print(error, file=sys.stderr)
        return 2


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this bug; more than once for several"
    )
    parser.add_argument("--layer", action="append", metavar="LAYER", help="only what this layer finds")
    parser.add_argument(
        "--page", action="store_true", help="renew the tables of docs/seeded-bugs.md, and seed none"
    )
    parser.add_argument("--list", action="store_true", help="print the bugs, and seed none")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object at the end, and nothing else"
    )
    return parser.parse_args(given)


def _chosen(names: list[str] | None, layers: list[str] | None) -> list[tuple[Mutant, Layer]]:
    """
    Who is to look for what.

    Raises:
        LookupError: There is no such bug or layer; the message names those that there are.
    """
    every = [(one, layer) for one in all_mutants() for layer in one.found_by]
    for kind, asked, known in (
        ("bug", names, [one.name for one, _ in every]),
        ("layer", layers, [layer.name for _, layer in every]),
    ):
        if unknown := set(asked or ()).difference(known):
            raise LookupError(
                f"no {kind} {', '.join(sorted(unknown))}; there are {', '.join(dict.fromkeys(known))}"
            )
    return [
        (one, layer)
        for one, layer in every
        if (not names or one.name in names) and (not layers or layer.name in layers)
    ]


def _run(chosen: list[tuple[Mutant, Layer]], *, as_json: bool) -> int:
    left_out = [name for _, layer in chosen if (name := layer.name) == "models" and missing() is not None]
    todo = [(one, layer) for one, layer in chosen if layer.name not in left_out]
    done: list[Look] = []
    with _server() as server:
        fails = _without_a_bug([layer for _, layer in todo], server)
        for look in _all(todo, server):
            done.append(look)
            if not as_json:
                print(f"[{len(done):3}/{len(todo)}] {look}", flush=True)
    told = summary(done, left_out, fails)
    print(json.dumps(told) if as_json else _total(told))
    return int(told["found"] < told["mutants"] or fails is not None)


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="slice-projections-mutants-") as base:
        Path(base).chmod(0o711)  # the server may run as another user, who passes through
        server = EmbeddedServer(Path(base, "server"), SETTINGS)
        try:
            with server as dsn:
                yield dsn
        finally:
            server.remove()


def _without_a_bug(layers: list[Layer], server: str) -> str | None:
    """Which of the tests fails without a bug, and so says nothing about any."""
    nodes = dict.fromkeys(node for layer in layers if isinstance(layer, Pytest) for node in layer.nodes)
    return Pytest(*nodes).failed(server) if nodes else None


def _all(todo: list[tuple[Mutant, Layer]], server: str) -> Iterator[Look]:
    def look(one: Mutant, layer: Layer) -> Look:
        began = time.monotonic()
        return Look(one, layer, layer.find(one, server), time.monotonic() - began)

    with ThreadPoolExecutor(max(1, min(2, len(os.sched_getaffinity(0))))) as pool:
        running = [pool.submit(look, *one) for one in todo]
        try:
            for ended in as_completed(running):
                yield ended.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def summary(done: list[Look], left_out: list[str], fails: str | None) -> dict[str, Any]:
    """The numbers of all bugs, those of each layer, and what each look came to."""
    layers = sorted({look.layer.name for look in done})
    missed = {look.mutant.name for look in done if look.found is None}
    return {
        "mutants": len({look.mutant.name for look in done}),
        "found": len({look.mutant.name for look in done} - missed),
        "layers": {
            name: {
                "mutants": sum(look.layer.name == name for look in done),
                "found": sum(look.layer.name == name and look.found is not None for look in done),
            }
            for name in layers
        },
        "left_out": len(left_out),
        "fails_without_a_bug": fails,
        "looks": [
            {
                "mutant": look.mutant.name, "layer": look.layer.name, "found": look.found,
                "seconds": round(look.seconds, 1),
            }
            for look in done
        ],
    }  # fmt: skip


def _total(told: dict[str, Any]) -> str:
    lines = [f"{name:18} {one['found']:3} of {one['mutants']:3}" for name, one in told["layers"].items()]
    if told["left_out"]:
        lines.append(f"{told['left_out']} of the models were left out: {missing()}")
    if told["fails_without_a_bug"] is not None:
        lines.append(f"FAILS WITHOUT A BUG: {told['fails_without_a_bug']}")
    return "\n".join(
        [*lines, f"{told['found']} of {told['mutants']} seeded bugs are found by each of their layers"]
    )


if __name__ == "__main__":
    sys.exit(main())
