"""Runs a program of Python with a seeded bug: ``python -m tests.mutants.within NAME MODULE [ARGUMENT …]``."""

from __future__ import annotations

import runpy
import sys

from tests.mutants.catalogue import MUTANTS


def main(given: list[str]) -> None:
    """Run a module as a program, with a bug in this process and in the schema that it installs."""
    if len(given) < 2 or given[0] not in MUTANTS:
        sys.exit(
            f"usage: python -m tests.mutants.within NAME MODULE [ARGUMENT …]; names: {', '.join(MUTANTS)}"
        )
    name, module, *arguments = given
    sys.argv = [module, *arguments]
    with MUTANTS[name].seeded():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
