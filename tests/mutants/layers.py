"""The layers of the proof, each as a way to look for a seeded bug."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.fixtures import processes
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
SECONDS = 1800
"""Nothing here takes longer on a machine that is busy."""
_LONGEST = 60
"""Seconds that a test may take; many wait longer for what a bug keeps from them."""
_TEMPLATE = "sp_mutants_template"
_KINDS = {
    "tests/property": "property tests",
    "tests/unit": "unit tests",
    "tests/integration": "integration tests",
    "tests/acceptance": "acceptance tests",
    "tests/models/test_explorer": "explorer",
    "tests/simulation/test_same_as_postgresql.py": "differential test",
}


class Broken(Exception):
    """A layer could not look for a bug: it says nothing about it."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """
    A program of Python, at the root of the project.

    Raises:
        Broken: It has not ended in time.
    """
    command = [sys.executable, *arguments]
    try:
        return processes.run(command, cwd=ROOT, seconds=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Broken(f"not ended within {SECONDS} s: {' '.join(command)}") from error


@dataclass(frozen=True, slots=True)
class Simulation:
    """
    Whole workers over a PostgreSQL in memory.

    Args:
        seeds: Within how many runs it must be found.
        first: The first of them.
        arrangement: Where things are in these; None: each draws it.
    """

    seeds: int = 1000
    first: int = 0
    arrangement: str | None = None

    @property
    def name(self) -> str:
        return "simulation"

    def find(self, mutant: Mutant, server: str) -> str | None:
        asked = ["--seeds", str(self.seeds), "--first", str(self.first), "--processes", "1"]
        asked += ["--arrangement", self.arrangement] if self.arrangement else []
        done = run("-m", "tests.simulation", *asked, "--mutant", mutant.name, "--stop", "--json")
        if done.returncode not in {0, 1}:
            raise Broken(done.stderr[-2000:])
        failed = json.loads(done.stdout)["failed"]
        return f"seed {failed[0]['seed']}: {failed[0]['reason']}" if failed else None


class Pytest:
    """
    Tests of the daily set, one of which must fail.

    Args:
        nodes: Their names, all of one layer.
    """

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes

    def __repr__(self) -> str:
        return f"Pytest{self.nodes}"

    @property
    def name(self) -> str:
        return next(kind for folder, kind in _KINDS.items() if self.nodes[0].startswith(folder))

    def find(self, mutant: Mutant, server: str) -> str | None:
        runs = ("-m", "tests.mutants.within", mutant.name)
        return self.failed(server, *runs, template=None if mutant.in_schema else _TEMPLATE)

    def failed(self, server: str, *runs: str, template: str | None = _TEMPLATE) -> str | None:
        """
        The first of the tests that fails.

        Args:
            server: The DSN of the server that they run on.
            runs: What runs ``pytest``; Python itself where nothing is given.
            template: The database with the schema that it shares with other runs; None where its schema is its own.

        Raises:
            Broken: None ran to its end.
        """
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            options = ("-x", "-q", f"--junitxml={report}", f"--postgres={server}")
            options += (f"--template={template}",) if template else ()
            options += (f"--timeout={_LONGEST}",)  # the same with a bug and without one
            options += ("-p", "no:cacheprovider", "-p", "tests.mutants.unshrunk")
            # What a bug is in was imported before, and what that imports.
            options += ("-W", "ignore::pytest.PytestAssertRewriteWarning")
            done = run(*(runs or ("-m",)), "pytest", *options, *self.nodes)
            cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
        for case in cases:
            if (failure := case.find("failure")) is not None:
                name = re.sub(r"^tests\.\w+\.", "", str(case.get("classname")))
                return f"{name}::{case.get('name')}: {str(failure.get('message')).splitlines()[0][:120]}"
        ran = [case for case in cases if case.find("skipped") is None and case.find("error") is None]
        if not ran or len(ran) < len(cases):
            raise Broken(done.stdout[-3000:] + done.stderr[-2000:])
        return None


@dataclass(frozen=True, slots=True)
class Spin:
    """
    A model in Promela with one of its mutants.

    Args:
        model: The model.
        mutant: Its mutant.
    """

    model: str
    mutant: str

    @property
    def name(self) -> str:
        return "models"

    def find(self, mutant: Mutant, server: str) -> str | None:
        from tests.models.catalogue import models
        from tests.models.spin import explore

        model = next(one for one in models() if one.name == self.model)
        found = explore(model, model.wrong(self.mutant))
        return found.why if found.errors else None
