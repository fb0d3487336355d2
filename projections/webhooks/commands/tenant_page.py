"""``projections webhooks page`` serves the page for tenants until it is stopped, and ``link`` lets one in."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from journal import Database
from projections.durations import Duration
from projections.extras import from_extra
from projections.http.addresses import Address, parse_address
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.output import Answer
from projections.terminal.targets import load_object
from projections.webhooks.commands.options import Server
from projections.webhooks.encryption import cipher_from_environment
from projections.webhooks.errors import InvalidSecret
from projections.webhooks.topics import Topic

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from projections.webhooks.page import PageLinks, PageTheme

KEYS_VARIABLE = "PROJECTIONS_PAGE_KEYS"
_NEW_KEY = (
    "python -c 'import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())'"
)
_DEFAULT_ADDRESS = "127.0.0.1:8761"

KeyFile = Annotated[
    Path | None,
    Opt(
        f"A file that holds the keys which sign links, with commas between. Default: what {KEYS_VARIABLE} has.",
        metavar="FILE",
    ),
]


_Url = Annotated[
    str | None,
    Opt("Where browsers find it, such as https://app.example.com/webhooks. Default: --http.", metavar="URL"),
]


@dataclass(frozen=True, slots=True)
class PageLook:
    """How the page looks."""

    name: Annotated[str, Opt("The application's name.", metavar="TEXT")] = "Webhooks"
    accent: Annotated[str, Opt("The colour of links and buttons.", metavar="#RRGGBB")] = "#0b6b7a"
    accent_dark: Annotated[str, Opt("The same for those who prefer a dark page.", metavar="#RRGGBB")] = (
        "#5cc4d4"
    )
    logo: Annotated[
        Path | None, Opt("A file of up to 256 KiB: .svg, .png, .webp or .jpg.", metavar="FILE")
    ] = None
    home: Annotated[str | None, Opt("Where the application is, for the link back to it.", metavar="URL")] = (
        None
    )

    @property
    def theme(self) -> PageTheme:
        """The theme that it makes; InvalidValue: a part of it cannot be."""
        from projections.webhooks.page import PageTheme  # noqa: PLC0415 - its extra may be missing; the help is not

        return PageTheme(self.name, self.accent, self.accent_dark, self.logo, self.home)


@click.command()
@derived
def page(
    *,
    http: Annotated[str, Opt("Where to serve.", metavar="HOST:PORT")] = _DEFAULT_ADDRESS,
    url: _Url = None,
    key_file: KeyFile = None,
    session: Annotated[
        timedelta, Opt("How long a browser may stay.", type=Duration(least="1m", most="1d"))
    ] = timedelta(minutes=30),
    topics: Annotated[
        str | None,
        Opt(
            "A list of Topic, or of names: what endpoints may ask for. Default: anything.",
            metavar="MODULE:OBJECT",
        ),
    ] = None,
    look: PageLook,
    server: Server,
) -> None:
    """
    Serve the page on which tenants look after their webhooks: endpoints, secrets, attempts, retries, statistics.

    \b
      export PROJECTIONS_PAGE_KEYS=...   32 random bytes in URL-safe base64
      projections webhooks page
      projections webhooks link acme          open what it prints in a browser

    A tenant enters through a link that works once. Your application makes it for a signed-in user, with PageLinks of
    projections.webhooks.page; `projections webhooks link` makes one, too. To serve the page from your application,
    mount webhooks_page of the same package.

    The server does not encrypt. If other machines can reach it, put a proxy with TLS in front of it, and pass the
    proxy's address as --url: sessions need https, except on a loopback address. The page is served at the path of that
    URL. Secrets of endpoints are encrypted with PROJECTIONS_WEBHOOK_KEYS, which must be the same for all processes.

    \b
    Exit codes
      0    stopped by SIGTERM
      1    could not start; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
    """  # noqa: D301 - click reads the escape
    address = parse_address(http)
    links = _links(url or f"http://{address}", key_file, session)
    known, theme = _topics(topics), look.theme

    def served(database: Database) -> AbstractAsyncContextManager[Address]:
        from projections.webhooks.page import webhooks_page  # noqa: PLC0415 - its extra may be missing; the help is not

        app = webhooks_page(
            database, links, theme=theme, cipher=cipher_from_environment(), rules=server.rules,
            allow_http=server.allow_http, topics=known,
        )  # fmt: skip
        return _listening(address, links.path, app)

    server.run("page for tenants", served)


@click.command()
@derived
def link(
    tenant: Annotated[str, Arg("TENANT")],
    *,
    url: Annotated[str, Opt("Where browsers find the page.", metavar="URL")] = f"http://{_DEFAULT_ADDRESS}",
    expires_in: Annotated[
        timedelta, Opt("How long the link is good.", type=Duration(least="1s", most="1d"))
    ] = timedelta(minutes=5),
    key_file: KeyFile = None,
) -> Answer:
    """
    Make a link that opens the page of a tenant, once, and for a few minutes.

    The link is signed with the first key of PROJECTIONS_PAGE_KEYS, which the page needs too. Whoever has it can enter.
    """
    found = _links(url, key_file).link(tenant, expires_in=expires_in)
    return Answer({"tenant": tenant, "url": found}, [found])


def _listening(address: Address, path: str, page: Starlette) -> AbstractAsyncContextManager[Address]:
    from projections.http.connection_limits import ConnectionLimits  # noqa: PLC0415 - of an extra
    from projections.http.serving import listening  # noqa: PLC0415 - likewise

    with from_extra("webhooks"):
        from starlette.applications import Starlette  # noqa: PLC0415 - likewise
        from starlette.routing import Mount  # noqa: PLC0415 - likewise

    # Everybody may ask: without a session, which a link begins, nothing is shown.
    return listening(address, Starlette(routes=[Mount(path, page)]), ConnectionLimits())


def _links(url: str, key_file: Path | None, session: timedelta = timedelta(minutes=30)) -> PageLinks:
    from projections.webhooks.page import PageLinks  # noqa: PLC0415 - its extra may be missing; the help is not

    return PageLinks(url, _keys(key_file), session=session)


def _keys(file: Path | None) -> list[bytes]:
    """The keys that a file or the environment has; InvalidValue: there is none, or one is malformed."""
    where = KEYS_VARIABLE if file is None else f"the file {file}"
    try:
        text = os.environ.get(KEYS_VARIABLE, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSecret(f"the keys cannot be read from {where}: {type(error).__name__}") from None
    written = [key for part in text.split(",") if (key := part.strip())]
    if not written:
        raise InvalidSecret(f"{where} has no key to sign links with; make one with: {_NEW_KEY}")
    keys = []
    for place, key in enumerate(written, 1):
        try:
            keys.append(urlsafe_b64decode(key.encode("ascii")))
        except ValueError:
            # `from None`: the cause may show the key.
            raise InvalidSecret(
                f"key {place} of {where} is not URL-safe base64; make one with: {_NEW_KEY}"
            ) from None
    return keys


def _topics(target: str | None) -> Collection[str | Topic] | None:
    if target is None:
        return None
    found = load_object(target)
    if not isinstance(found, list | tuple | set) or not all(isinstance(each, str | Topic) for each in found):
        raise click.BadParameter(f"{target!r} is not a list of Topic, or of names of topics")
    return found
