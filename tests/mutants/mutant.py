"""
Seeded bugs, and which layer of the proof finds each.

A bug changes one rule that the design relies on: an attribute of a class is replaced, or a piece of the text of a
function, or of an SQL file, so that the schema that a test installs has it. A layer that finds it is worth something.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

Seeding = Callable[[], AbstractContextManager[Any]]
"""Makes what has the bug inside of its block."""


class Layer(Protocol):
    """One way to look for bugs."""

    @property
    def name(self) -> str:
        """How the page calls it."""
        ...

    def find(self, mutant: Mutant, server: str) -> str | None:
        """
        Look for a bug.

        Args:
            mutant: The bug.
            server: The DSN of a PostgreSQL for tests.

        Returns:
            What showed it, such as the number of a seed or the name of a test; None when nothing did.
        """
        ...


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    A seeded bug.

    Args:
        name: What commands call it.
        wrong: What it does wrong, for people.
        code: The file that it is in, and the name in it where there is one.
        found_by: The layers that must find it, each for itself.
        seeded: Makes the bug; a model has its own.
    """

    name: str
    wrong: str
    code: str
    found_by: tuple[Layer, ...]
    seeded: Seeding = nullcontext

    @property
    def in_schema(self) -> bool:
        """Whether the schema that is installed has it: nobody else may use that."""
        return self.code.startswith(("sql/", "journal/schema/"))


MUTANTS: dict[str, Mutant] = {}
"""Those of the code by name, as modules register them; :mod:`tests.mutants.catalogue` has all."""


def mutant(name: str, wrong: str, code: str, *found_by: Layer) -> Callable[[Seeding], Seeding]:
    """
    Register the bug that the decorated function makes.

    Args:
        name: As of :class:`Mutant`, like the others.
        wrong: What it does wrong.
        code: Where it is.
        found_by: Who must find it.
    """

    def register(seeded: Seeding) -> Seeding:
        if name in MUTANTS:
            raise ValueError(f"two mutants are called {name!r}")
        MUTANTS[name] = Mutant(name, wrong, code, found_by, seeded)
        return seeded

    return register
