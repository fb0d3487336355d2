"""The shape of what every command prints with ``--json``: its keys with the types of their values."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from journal import Event, append, connect
from tests.fixtures.commands import ROOT, called, projections, query
from tests.golden.commands import commands_with_json
from tests.golden.recordings import Files, Fresh, lines
from tests.golden.state import filled

COMMANDS = """
schema install
schema upgrade
schema verify
status
status delays
lag
lag delays --slices
workers list
workers show OWNER
wait delays --token TOKEN
audit parking --handled HANDLED --grace 0s
offsets list
offsets show delays
offsets verify
journals attach table --journal-variable ORDERS_DSN --name orders --mapping MAPPING
journals list
journals show orders
offsets import APP:Orders --position 0 --journal orders --dry-run
journals detach orders
parked list
parked show parking a
parked retry parking a
parked drop parking --all --yes
pause delays
resume delays
mode delays inline
mode delays live
rescale delays --ranges 3
offsets set delays --from 2020-01-01T00:00:00Z --yes
offsets clear delays --yes
subscribe late --topic Landed --entity-type plane --expires-after 1h --from beginning
publish order.paid {}
groups list
groups show billing
groups show late
groups dead list billing
groups dead show billing 1
groups dead drop billing 1 --yes
groups dead retry billing --all
groups give-up billing invoice --yes
groups rescale billing --ranges 4
groups rewind billing --from beginning --yes
subscriptions list
subscriptions show 2
subscriptions show 3
subscriptions show 4
subscriptions waiting list
subscriptions waiting show 1
subscriptions waiting retry 1
subscriptions waiting drop 1 --yes
subscriptions release 2
subscriptions remove 4 --yes
groups remove billing --yes
webhooks endpoints add acme https://example.com/b --topic a.b --rate-limit 2.5 --retry 5s --header X-Env:dev
webhooks endpoints set-certificate ENDPOINT CLIENT
webhooks endpoints set-oauth ENDPOINT --token-url https://login.example.com/token --client-id acme --secret-file SECRET
webhooks endpoints list
webhooks endpoints list --limit 1
webhooks endpoints change ENDPOINT --description changed --retry 5s
webhooks endpoints show ENDPOINT
webhooks endpoints remove-certificate ENDPOINT
webhooks endpoints remove-oauth ENDPOINT
webhooks endpoints pause ENDPOINT
webhooks endpoints resume ENDPOINT
webhooks endpoints disable ENDPOINT
webhooks endpoints enable ENDPOINT
webhooks endpoints rotate-secret ENDPOINT
webhooks endpoints renew-secrets
webhooks deliveries list
webhooks deliveries list --limit 1
webhooks deliveries show ENDPOINT DONE
webhooks dead list
webhooks dead list --limit 1
webhooks dead show ENDPOINT DEAD
webhooks events list
webhooks events list --limit 1
webhooks events show DEAD
webhooks attempts list
webhooks attempts list --limit 1
webhooks attempts show ATTEMPT
webhooks stats
webhooks metrics
webhooks metrics --by endpoint
webhooks endpoints test ENDPOINT --allow-address 127.0.0.0/8
webhooks endpoints verify ENDPOINT --allow-address 127.0.0.0/8
webhooks deliveries retry ENDPOINT DONE
webhooks deliveries drop ENDPOINT OTHER --yes
webhooks dead drop --all --yes
webhooks dead retry --all
webhooks limits list
webhooks limits change timeout --most 20s
webhooks send acme order.paid {}
webhooks erase acme DONE --yes
webhooks schedules add acme hourly 0_*_*_*_* order.paid
webhooks schedules list
webhooks schedules show SCHEDULE
webhooks schedules pause SCHEDULE
webhooks schedules resume SCHEDULE
webhooks schedules run SCHEDULE
webhooks schedules remove SCHEDULE --yes
webhooks endpoints remove ENDPOINT --yes
webhooks link acme
backfill FLIGHTS --entity-type boat --dry-run
captures add captured
captures list
captures release captured
partitions change events --ahead 9 --retention 30d
partitions list
maintain
maintain --force
partitions schedule
doctor
sql UPDATE projections.sources SET seq_nr = 1 WHERE source_id = 'c'
offsets verify
remove parking --yes
""".strip().splitlines()
"""In this order: some leave what others need. What follows ``sql`` is a statement."""
BESIDE_A_WRITER = ["status", "doctor"]
"""While a transaction is open that has appended."""
BATCHES = """
verify APP:Delays --all
rebuild APP:Delays --engine local --splits 1
rebuilds list
rebuilds drop-old delays
rebuilds cancel delays
archive export ARCHIVE --entity-type ship --until 2020-01-03T00:00:00Z
archive verify ARCHIVE --against-journal
archive restore ARCHIVE
archive erase ARCHIVE
archive repair ARCHIVE
""".strip().splitlines()
"""Likewise; they start processes, which takes seconds."""
LAST = "schema uninstall --yes"
"""When no worker runs any more."""
OWN_PROCESS = ("rebuild ", "verify ")
"""Load modules and processes: run in a process of their own."""
WITHOUT_DATABASE = ("archive repair", "webhooks link")
ELSEWHERE = {
    "demo": "takes half a minute; its --help, which is recorded, has the keys",
    "webhooks listen": "prints objects until it is stopped",
}
"""Commands whose shape is not recorded, and why."""
_HANDLED = "SELECT source_id, seq_nr FROM effects ORDER BY n"
_KINDS = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def json_shapes(fresh: Fresh) -> Files:
    """The shape of the output of every command that takes no seconds."""
    return {"json.txt": _shapes(fresh, [*COMMANDS, LAST])}


def json_shapes_of_batches(fresh: Fresh) -> Files:
    """The shape of the output of rebuilds and of the archive's commands."""
    return {"json_batches.txt": _shapes(fresh, BATCHES)}


def command_of(line: str) -> str:
    """The command of a line of :data:`COMMANDS`, such as ``webhooks endpoints add``."""
    return next(name for name in commands_with_json() if f"{line} ".startswith(f"{name} "))


def _shapes(fresh: Fresh, asked: list[str]) -> str:
    with fresh() as dsn, TemporaryDirectory() as directory:
        answers = asyncio.run(_answers(dsn, Path(directory), asked))
    return lines(line for command in sorted(answers) for line in described(command, answers[command]))


def shape(value: Any, place: str = "") -> dict[str, set[str]]:
    """The types of values by their place, such as ``rows[].name``; elements of a list are of one place."""
    found: dict[str, set[str]] = defaultdict(set)
    if isinstance(value, dict):
        inner = [shape(one, f"{place}.{name}" if place else name) for name, one in value.items()]
        kind = "object"
    elif isinstance(value, list):
        inner, kind = [shape(one, f"{place}[]") for one in value], "array"
    else:
        inner, kind = [], _KINDS[type(value)]
    found[place].add(kind)
    for each in inner:
        for name, kinds in each.items():
            found[name] |= kinds
    return found


async def _answers(dsn: str, directory: Path, asked: list[str]) -> Mapping[str, list[Any]]:
    """What the commands print, by command."""
    answers: dict[str, list[Any]] = defaultdict(list)
    names = {"HANDLED": _HANDLED}

    async def ask(line: str) -> None:
        if line.startswith("sql "):
            query(dsn, f"{line[4:]} RETURNING 1")
            return
        command = command_of(line)
        answers[command].append(await asyncio.to_thread(_answer, line, names, dsn))
        if command == "webhooks schedules add":
            names["SCHEDULE"] = answers[command][-1]["schedule_id"]

    with patch.dict(os.environ, {"ORDERS_DSN": dsn, "PROJECTIONS_PAGE_KEYS": f"{'A' * 43}="}):
        async with filled(dsn, directory) as found:
            names |= found
            for line in asked:
                if line != LAST:
                    await ask(line)
            if LAST in asked:
                async with connect(dsn) as database, database.transaction() as session:
                    await append(session, [Event("w", {}, "writer", event_type="Written")])
                    for line in BESIDE_A_WRITER:
                        await ask(line)
        if LAST in asked:
            await ask(LAST)
    return answers


def _answer(line: str, names: Mapping[str, str], dsn: str) -> Any:
    """What a command prints; some exit with a code because of what they have found."""
    arguments = [names.get(word, word).replace("APP:", f"{names['APP']}:") for word in line.split()]
    arguments = [word.replace("_", " ") if "*" in word else word for word in arguments]
    where = [] if line.startswith(WITHOUT_DATABASE) else ["--dsn", dsn]
    if line.startswith(OWN_PROCESS):
        done = projections(*arguments, "--json", *where, cwd=ROOT)
    else:
        done = called(*arguments, "--json", *where)
    if not done.stdout:
        raise AssertionError(f"{line}: {done.stderr}")
    return json.loads(done.stdout)


def described(command: str, answers: list[Any]) -> Iterator[str]:
    """A line for each place, with the types that were there; containers only where they may be something else."""
    found: dict[str, set[str]] = defaultdict(set)
    for answer in answers:
        for place, kinds in shape(answer).items():
            found[place] |= kinds
    yield f"projections {command} --json"
    for place in sorted(found):
        below = any(one.startswith((f"{place}.", f"{place}[")) for one in found)
        if place and not (below and found[place] <= {"object", "array"}):
            yield f"    {place}: {' or '.join(sorted(found[place]))}"
