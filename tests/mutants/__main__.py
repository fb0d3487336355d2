"""
Seeds one bug after the other, and runs the layers of the proof that must find it: ``python -m tests.mutants``.

Ends with 1 when a bug is not found, or when what should find it fails without it; with 2 where it cannot tell.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tests.fixtures.processes import end_with_this_process, none_left_behind, told_to_end
from tests.models.spin import missing
from tests.mutants.catalogue import all_mutants
from tests.mutants.layers import Broken
from tests.mutants.looking import Job, Records, in_order, look, without_a_bug
from tests.mutants.mutant import Layer, Mutant
from tests.mutants.page import PAGE, renewed
from tests.mutants.server import running_server as _server
from tests.mutants.summary import summary, told


def main(given: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _arguments(given)
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
    end_with_this_process()
    try:
        with told_to_end(), none_left_behind():  # whatever ends it
            return _run(chosen, asked)
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
    parser.add_argument(
        "--processes", type=int, default=_processors(), metavar="N", help="default: one for each processor"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep what each look comes to in this file, and go on after those that are in it",
    )
    return parser.parse_args(given)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def _run(chosen: list[tuple[Mutant, Layer]], asked: argparse.Namespace) -> int:
    todo = [one for one in chosen if one[1].name != "models" or missing() is None]
    jobs = [Job(*one) for one in todo] + without_a_bug((layer for _, layer in todo), asked.processes)
    records = Records(asked.resume)
    done = records.done(jobs)
    known = {look.job.key for look in done}
    if known:
        print(f"{len(known)} of {len(jobs)} looks are in {asked.resume}", file=sys.stderr)
    with _server() as server:
        for one in look(in_order(job for job in jobs if job.key not in known), server, asked.processes):
            done.append(one)
            records.add(one)
            if not asked.json:
                print(f"[{len(done):3}/{len(jobs)}] {one}", flush=True)
    numbers = summary(done, len(chosen) - len(todo))
    print(json.dumps(numbers) if asked.json else f"\n{told(numbers)}")
    if numbers["cannot_tell"]:
        return 2
    return int(numbers["found"] < numbers["mutants"] or numbers["fails_without_a_bug"] is not None)


if __name__ == "__main__":
    sys.exit(main())
