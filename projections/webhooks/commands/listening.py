"""``projections webhooks listen``: a receiver on this machine."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import click

from journal.tasks import first_of
from projections.http.addresses import parse_address
from projections.http.connection_limits import ConnectionLimits
from projections.terminal.commands import AsJson, Opt, derived
from projections.terminal.output import Answer, picked, printable, shortened
from projections.terminal.signals import stopped_by_signals
from projections.webhooks.commands.options import secret_of
from projections.webhooks.receiver import Received, Receiver, Totals

_KEPT = 1


def _share(_: click.Context, __: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which is within any range
        raise click.BadParameter("nan is not a share: write 0 to 1, such as 0.3")
    return value


_Secret = Opt(
    "Verify signatures with this secret; may be repeated. Whoever is on this machine can read it: for trying out.",
    "--secret", metavar="whsec_...",
)  # fmt: skip
_FailRate = Opt(
    "Fail this share of the requests, at random.", type=click.FloatRange(0, 1), callback=_share, metavar="0.3"
)
_Status = Opt("What a failure is answered with.", type=click.IntRange(200, 599))


@click.command(short_help="Receive webhooks on this machine, to try them out.")
@click.pass_context
@derived
def listen(
    context: click.Context,
    /,
    *,
    http: Annotated[
        str, Opt("Where to listen; port 0 is any that is free.", metavar="HOST:PORT")
    ] = "127.0.0.1:9000",
    secrets: Annotated[tuple[str, ...], _Secret] = (),
    secret_file: Annotated[
        str | None, Opt("Verify with the secret that a file has.", metavar="FILE|-")
    ] = None,
    fail_rate: Annotated[float, _FailRate] = 0,
    seed: Annotated[int | None, Opt("With the same number, the same requests fail.")] = None,
    status: Annotated[int, _Status] = 500,
    delay: Annotated[timedelta, Opt("Wait this long before each answer.")] = timedelta(0),
    count: Annotated[
        int | None, Opt("End when this many messages were accepted.", type=click.IntRange(1), metavar="N")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Receive webhooks on this machine, and print each: whether its signature is right, and whether it has come before.

    \b
      projections webhooks listen --secret whsec_...
      projections webhooks listen --secret-file secret.txt --fail-rate 0.3 --seed 1 --delay 50ms

    It answers 204; 401 where the signature is wrong; and --status where it fails by chance, so that you see it come
    again. A message that comes again after it was accepted is a duplicate: a receiver answers 2xx, and does nothing.

    It prints until Ctrl-C or SIGTERM, and then what it all came to. With --json each line is an object, the last
    one the totals. A sender reaches it with --allow-address 127.0.0.0/8, and its endpoint is made with --allow-http.

    \b
    Exit codes
      0    --count messages came, or stopped by SIGTERM; every signature was right, or none was checked
      1    a signature was wrong; or it could not listen
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C), and no signature was wrong
    """  # noqa: D301 - click reads the escape, and a first sentence may be longer than a line
    given = [*secrets, *([text] if (text := secret_of(secret_file)) else [])]
    echo = _echo_json if as_json else _echo
    address = parse_address(http)
    receiver = Receiver(
        given, host=address.host, port=address.port, fail_rate=fail_rate, seed=seed, status=status, delay=delay,
        keep=_KEPT, on_received=echo, limits=ConnectionLimits(),
    )  # fmt: skip
    code = asyncio.run(_listen(receiver, count, checked=bool(given), as_json=as_json))
    _echo_totals(receiver.totals, as_json=as_json)
    context.exit(1 if receiver.totals.refused else code)


async def _listen(receiver: Receiver, count: int | None, *, checked: bool, as_json: bool) -> int:
    stop = asyncio.Event()
    with stopped_by_signals(stop) as received:
        async with receiver:
            if as_json:
                click.echo(json.dumps({"listening": receiver.url, "verifies": checked}))
            else:
                how = "signatures are verified" if checked else "no --secret: signatures are not checked"
                click.echo(f"listening at {receiver.url}, {how}; Ctrl-C ends")
            await first_of(stop.wait(), *([] if count is None else [receiver.wait_for(count)]))
    return received.exit_code


def _echo(one: Received) -> None:
    topic = printable(one.topic or "no topic")
    message_id = printable(one.message_id) or "no webhook-id"
    # The type and the time before it are in the line already.
    data = (
        one.body.decode(errors="replace")
        if (found := one.data()) is None
        else json.dumps(found, ensure_ascii=False)
    )
    click.echo(
        f"{one.at:%H:%M:%S.%f}"[:-3]
        + f"  {one.status}  {topic}  {message_id}  {_verdict(one)}  {shortened(data)}"
    )


def _verdict(one: Received) -> str:
    words: list[str] = ["NOT VERIFIED" if one.verification == "refused" else one.verification]
    if one.reason:
        words.append(printable(one.reason))
    if one.duplicate:
        words.append("duplicate")
    elif one.sending > 1:
        words.append(f"sending {one.sending}")
    if not one.accepted and one.verification != "refused":
        words.append("failed by chance")
    return ", ".join(words)


def _echo_json(one: Received) -> None:
    values = picked(
        one, "at", "message_id", "topic", "status", "verification", "reason", "sending", "duplicate"
    )
    Answer(values | {"body": one.body.decode(errors="replace")}, []).echo(as_json=True)


def _echo_totals(totals: Totals, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"totals": asdict(totals)}))
        return
    click.echo(
        f"{totals.requests:,} requests: {totals.messages:,} messages accepted, {totals.duplicates:,} duplicates, "
        f"{totals.failed:,} failed by chance, {totals.refused:,} not verified"
    )
