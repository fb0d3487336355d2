"""
The models of this folder, as their own headers state them: what they stand for, how large, and what must be found.

A header is of lines that begin with ``//`` and a word: ``model`` is followed by what holds; ``code`` by a file and the
names in it that the model stands for; ``scope`` and ``large`` by a name and the sizes that are explored completely,
of which ``PROGRESS`` asks for what is to happen in the end;
``mutant`` by a name, the sizes that suffice to find it, and what is wrong in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_LINE = re.compile(r"^// (model|code|scope|large|mutant|reader) +(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scope:
    """
    What is explored at a time.

    Args:
        name: What is special about it, for people.
        sizes: Definitions for the preprocessor, such as ``WRITERS=2``.
        wrong: Of a mutant, what it does wrong.
    """

    name: str
    sizes: tuple[str, ...]
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """
    A model in Promela.

    Args:
        name: The name of its file.
        promise: What holds in it.
        code: Files of this project, relative to its root, and the names in them that it stands for.
        scopes: Explored completely whenever the models run.
        large: Explored besides, where there is time.
        mutants: Wrong variants, each of which must break the promise.
        readers: Protocols of other systems that are to be compared with ours; also wrong, each in its way.
    """

    name: str
    promise: str
    code: tuple[tuple[str, tuple[str, ...]], ...]
    scopes: tuple[Scope, ...]
    large: tuple[Scope, ...]
    mutants: tuple[Scope, ...]
    readers: tuple[Scope, ...]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.pml"

    def wrong(self, name: str) -> Scope:
        """
        A mutant, or a protocol of another system, by its name.

        Raises:
            LookupError: There is none; the message names those that there are.
        """
        for one in self.mutants + self.readers:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.mutants + self.readers)
        raise LookupError(f"{self.name} has no mutant {name!r}; it has {known}")


def models() -> list[Model]:
    """All models of this folder."""
    return [_read(path) for path in sorted(FOLDER.glob("*.pml"))]


def _read(path: Path) -> Model:
    lines = _LINE.findall(path.read_text(encoding="utf-8"))

    def of(kind: str) -> list[str]:
        return [text for word, text in lines if word == kind]

    return Model(
        path.stem,
        " ".join(of("model")),
        tuple(map(_code, of("code"))),
        tuple(map(_scope, of("scope"))),
        tuple(map(_scope, of("large"))),
        tuple(map(_scope, of("mutant"))),
        tuple(map(_scope, of("reader"))),
    )


def _code(text: str) -> tuple[str, tuple[str, ...]]:
    file, _, names = text.partition(":")
    return file.strip(), tuple(name.strip() for name in names.split(",") if name.strip())


def _scope(text: str) -> Scope:
    name, sizes, *wrong = (part.strip() for part in text.split(":", 2))
    return Scope(name, tuple(sizes.split()), *wrong)
