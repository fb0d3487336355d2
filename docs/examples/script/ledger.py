"""
A plain script: append, project, look.

    python ledger.py deposit account-1 10
    python ledger.py balances

The database is that of PROJECTIONS_DSN, else an embedded PostgreSQL.
"""

import asyncio
import sys

import psycopg
from pydantic import BaseModel

from projections import (
    Changes,
    Event,
    EventEnvelope,
    Table,
    append_sync,
    connect,
    database_dsn,
    handles,
    install,
    projection,
    run,
)

CREATE = "CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, balance bigint NOT NULL DEFAULT 0)"


class Deposited(BaseModel):
    amount: int


BALANCES = Table("balances", key="account", increment="balance")


@projection("balances", entity_type="account")
class Balances:
    @handles(Deposited)
    def deposited(self, event: Deposited, envelope: EventEnvelope) -> Changes:
        return BALANCES.upsert(account=envelope.source_id, balance=event.amount)


async def catch_up(dsn: str) -> None:
    async with connect(dsn) as database:
        await run(database, Balances, until_caught_up=True)


def main(arguments: list[str]) -> int:
    with database_dsn() as dsn:
        install(dsn)
        with psycopg.connect(dsn) as connection:
            connection.execute(CREATE)
        match arguments:
            case ["deposit", account, amount]:
                with psycopg.connect(dsn) as connection:
                    append_sync(connection, [Event(account, Deposited(amount=int(amount)), "account")])
            case ["balances"]:
                asyncio.run(catch_up(dsn))
                with psycopg.connect(dsn) as connection:
                    for account, balance in connection.execute("SELECT * FROM balances ORDER BY account"):
                        print(account, balance)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
