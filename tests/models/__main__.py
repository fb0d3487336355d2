"""
Explores the models of this folder completely, and their mutants up to the first error: ``python -m tests.models``.

It needs Spin and a C compiler (Debian: ``apt-get install spin gcc``). Every scope must be without an error, and every
mutant must have one, or it ends with 1; where a program is missing, with 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from tests.fixtures.processes import end_with_this_process
from tests.models.catalogue import Model, Scope, models
from tests.models.spin import Explored, Missing, Unfinished, explore, missing, shortest


@dataclass(frozen=True, slots=True)
class Run:
    """A model at one of its scopes, or one of its mutants."""

    model: Model
    scope: Scope
    large: bool = False

    @property
    def is_mutant(self) -> bool:
        return bool(self.scope.wrong)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _arguments(arguments)
    if (why := missing()) is not None:
        print(f"the models were not run: {why}", file=sys.stderr)
        return 2
    try:
        if asked.show:
            return _show(*asked.show)
        return _check(_chosen(asked.only), large=asked.large, as_json=asked.json)
    except (LookupError, Missing, Unfinished) as error:
        print(str(error.args[0] if error.args else error), file=sys.stderr)
        return 1


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object at the end, and nothing else"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this model; more than once for several"
    )
    parser.add_argument("--large", action="store_true", help="the larger scopes, too: this takes long")
    parser.add_argument(
        "--show",
        nargs=2,
        metavar=("MODEL", "MUTANT"),
        help="the shortest schedule in which a mutant goes wrong",
    )
    return parser.parse_args(arguments)


def _chosen(names: list[str] | None) -> list[Model]:
    known = models()
    if unknown := set(names or ()) - {model.name for model in known}:
        raise LookupError(
            f"no model {', '.join(sorted(unknown))}; there are {', '.join(m.name for m in known)}"
        )
    return [model for model in known if not names or model.name in names]


def _show(name: str, mutant: str) -> int:
    (model,) = _chosen([name])
    wrong = model.wrong(mutant)
    print(f"{model.name}, {mutant}: {wrong.wrong}\n")
    for number, step in enumerate(shortest(model, wrong), 1):
        print(f"{number:3}  {step}")
    return 0


def runs(chosen: Iterable[Model], *, large: bool) -> list[Run]:
    """What is to be explored: what takes longest first."""
    chosen = list(chosen)
    return [
        *(Run(model, scope, large=True) for model in chosen if large for scope in model.large),
        *(Run(model, scope) for model in chosen for scope in model.scopes),
        *(Run(model, mutant) for model in chosen for mutant in model.mutants + model.readers),
    ]


def _check(chosen: list[Model], *, large: bool, as_json: bool) -> int:
    began = time.monotonic()
    todo = runs(chosen, large=large)
    done: list[tuple[Run, Explored]] = []
    for run, found in _all(todo):
        done.append((run, found))
        if not as_json:
            print(f"[{len(done):3}/{len(todo)}] {_line(run, found)}", flush=True)
    result = summary(done)
    if as_json:
        print(json.dumps(result))
    else:
        print(f"\n{table(done)}\n\n{_total(result)}; {time.monotonic() - began:.0f} s")
    return 0 if not result["errors"] and result["mutants_found"] == result["mutants"] else 1


def _total(result: dict[str, Any]) -> str:
    return (
        f"{result['models']} models, {result['states']:,} states, {result['errors']} errors; "
        f"{result['mutants_found']} of {result['mutants']} mutants found"
    )


def _all(todo: list[Run]) -> Iterator[tuple[Run, Explored]]:
    with ThreadPoolExecutor(max(1, min(2, len(os.sched_getaffinity(0))))) as pool:
        running = {pool.submit(explore, run.model, run.scope, large=run.large): run for run in todo}
        try:
            for ended in as_completed(running):
                yield running[ended], ended.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def summary(done: Iterable[tuple[Run, Explored]]) -> dict[str, Any]:
    """The numbers of all runs, and those of each."""
    done = list(done)
    right = [found for run, found in done if not run.is_mutant]
    mutants = [found for run, found in done if run.is_mutant]
    return {
        "models": len({run.model.name for run, _ in done}),
        "states": sum(found.states for found in right),
        "errors": sum(found.errors for found in right),
        "mutants": len(mutants),
        "mutants_found": sum(found.errors for found in mutants),
        "runs": [
            {
                "model": run.model.name, "scope": run.scope.name, "mutant": run.is_mutant, "states": found.states,
                "errors": found.errors, "why": found.why, "seconds": round(found.seconds, 2),
            }
            for run, found in done
        ],
    }  # fmt: skip


def _line(run: Run, found: Explored) -> str:
    what = f"{run.model.name}, {run.scope.name}"
    if run.is_mutant:
        return f"{what}: {'found' if found.errors else 'NOT FOUND'} ({found.seconds:.1f} s)"
    return f"{what}: {found.states:,} states, {found.why or 'no error'} ({found.seconds:.1f} s)"


def table(done: Iterable[tuple[Run, Explored]]) -> str:
    """A line for each model, for people."""
    done = list(done)
    lines = [f"{'model':14}{'states':>14}{'errors':>8}{'mutants':>9}{'found':>7}"]
    for name in sorted({run.model.name for run, _ in done}):
        one = summary((run, found) for run, found in done if run.model.name == name)
        lines.append(
            f"{name:14}{one['states']:>14,}{one['errors']:>8}{one['mutants']:>9}{one['mutants_found']:>7}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    end_with_this_process()
    sys.exit(main())
