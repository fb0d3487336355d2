"""
Simulates whole workers under faults, one run for each seed: ``python -m tests.simulation --seeds 1000``.

A seed that fails is shrunk, and the shortest plan and its trace are printed. Exits with 1 when one has failed.
How far a run is, is told on standard error, with the ``--first`` and ``--seeds`` that go on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial

from spark_projections.engine.parallel import spread
from tests.mutants.catalogue import MUTANTS
from tests.simulation.plan import ARRANGEMENTS, plan_of
from tests.simulation.report import Report, run_chunk
from tests.simulation.shrinking import shrunk
from tests.simulation.world import simulate

_CHUNK = 25
"""Seeds that a process takes at a time."""
_SHRUNK = 3
"""Failed seeds that are shrunk: each takes as long as hundreds that pass."""
_LINES = 80


def _chunks(first: int, seeds: int) -> Iterator[tuple[int, int]]:
    for start in range(first, first + seeds, _CHUNK):
        yield start, min(_CHUNK, first + seeds - start)


def _run(options: argparse.Namespace) -> Report:
    report = Report()
    # With one order of sets for all: it is part of what a seed stands for.
    work = partial(run_chunk, mutant=options.mutant, arrangement=options.arrangement, stop=options.stop)
    left = dict(_chunks(options.first, options.seeds))
    with closing(spread(work, list(left.items()), processes=options.processes)) as reports:
        for start, one in reports:
            report.merge(one)
            del left[start]
            _tell_how_far(report, left, options.first + options.seeds)
            if options.stop and report.failed:
                break
    report.failed.sort(key=lambda failed: int(failed["seed"]))  # chunks end in any order
    return report


def _tell_how_far(report: Report, left: Mapping[int, int], end: int) -> None:
    """Chunks end in any order: to go on, one begins with the first that has not ended."""
    rest = f"; to go on: --first {min(left)} --seeds {end - min(left)}" if left else ""
    failed = "".join(f", {one['seed']} has failed" for one in report.failed)
    print(f"{report.seeds} seeds{failed}{rest}", file=sys.stderr, flush=True)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many runs (default: 1000)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--trace", action="store_true", help="print all that happens in the run of the first seed"
    )
    parser.add_argument(
        "--mutant", choices=MUTANTS, metavar="NAME", help="with a seeded bug (python -m tests.mutants --list)"
    )
    parser.add_argument(
        "--arrangement",
        choices=ARRANGEMENTS,
        metavar="NAME",
        help="where things are: " + ", ".join(ARRANGEMENTS),
    )
    parser.add_argument("--stop", action="store_true", help="at the first seed that fails")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="default: one for each processor"
    )
    return parser.parse_args(given)


def _show(report: Report) -> None:
    print(
        f"{report.seeds} runs, {report.events} steps, {report.committed} events committed in "
        f"{report.seconds:.0f} s of virtual time, {report.faults.total()} faults"
    )
    print("  " + ", ".join(f"{name} {number}" for name, number in sorted(report.arrangements.items())))
    for kind, number in sorted(report.faults.items()):
        hit = [f"{step} {count}" for (one, step), count in report.hit.most_common() if one == kind]
        print(f"  {kind}: {number}, as a worker did {', '.join(hit)}")
    for failed in report.failed:
        print(f"FAILED: seed {failed['seed']}, {failed['arrangement']}: {failed['reason']}")


def _show_shrunk(seed: int, arrangement: str, mutant: str | None) -> None:
    with MUTANTS[mutant].seeded() if mutant else nullcontext():
        outcome = shrunk(simulate(plan_of(seed, arrangement)))
    print(
        f"\nThe shortest plan that fails as seed {seed}:\n{outcome.plan}\nfails: {outcome.failure}\nIts last steps:"
    )
    print("\n".join(outcome.trace[-_LINES:]))


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = _arguments(given)
    if options.trace:
        with MUTANTS[options.mutant].seeded() if options.mutant else nullcontext():
            outcome = simulate(plan_of(options.first, options.arrangement), trace=True)
        print("\n".join([str(outcome.plan), *outcome.trace, f"failure: {outcome.failure}"]))
        return int(outcome.failure is not None)
    report = _run(options)
    if options.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
        for failed in report.failed[:_SHRUNK]:
            _show_shrunk(failed["seed"], failed["arrangement"], options.mutant)
    return int(bool(report.failed))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of what a seed stands for.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends at once, and its processes with it
    sys.exit(main())
