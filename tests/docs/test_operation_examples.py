"""The unit and the manifests that people copy: they parse, and what they start is what the command takes."""

from __future__ import annotations

import configparser
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from projections.cli import main

EXAMPLES = Path(__file__).parents[2] / "docs/operations/examples"
MANIFESTS = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))


def _unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(EXAMPLES / "projections.service")
    return parser


def _pods(manifest: dict[str, Any]) -> dict[str, Any]:
    """What its pods are made of; empty for what makes none."""
    spec = manifest["spec"]
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return spec.get("template", {}).get("spec", {})


CONTAINERS = [container for manifest in MANIFESTS for container in _pods(manifest).get("containers", [])]
COMMANDS = [
    *(container["command"] for container in CONTAINERS),
    shlex.split(_unit()["Service"]["ExecStart"]),
]


def _parse(command: click.Command, arguments: Sequence[str]) -> click.Context:
    """As click does before it runs anything; raises what it would print."""
    context = command.make_context(command.name, list(arguments))
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        return _parse(inner, rest)
    return context


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_an_example_is_one_that_projections_takes(command: list[str]) -> None:
    program, *arguments = command

    assert Path(program).name == "projections"
    _parse(main, arguments)


def test_the_unit_leaves_time_to_finish_and_starts_again() -> None:
    service = _unit()["Service"]

    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "always"
    assert int(service["TimeoutStopSec"]) > 60  # a call of a handler may take so long


def test_probes_ask_the_port_that_the_worker_serves_at() -> None:
    [worker] = [container for container in CONTAINERS if "worker" in container["command"]]
    [port] = worker["ports"]

    served = worker["command"][worker["command"].index("--http") + 1]

    assert served == f"0.0.0.0:{port['containerPort']}"
    assert worker["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
    assert worker["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}


def test_containers_may_do_nothing_that_they_do_not_need() -> None:
    pods = [pods for manifest in MANIFESTS if (pods := _pods(manifest))]

    assert {str(pod.get("securityContext")) for pod in pods} == {
        str({"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    }
    for container in CONTAINERS:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_workers_do_not_connect_as_the_owner_of_the_schema() -> None:
    keys = {
        container["command"][1]: variable["valueFrom"]["secretKeyRef"]["key"]
        for container in CONTAINERS
        for variable in container["env"]
        if variable["name"] == "PROJECTIONS_DSN"
    }

    assert keys == {"schema": "owner-dsn", "worker": "worker-dsn", "maintain": "owner-dsn"}
