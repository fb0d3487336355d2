"""
FastAPI and SQLAlchemy: an order and its event commit together, and a read after a write sees it.

    pip install 'slice-projections[embedded,uvloop]' fastapi 'sqlalchemy[asyncio]' uvicorn
    export PROJECTIONS_DSN=postgresql://localhost/orders
    export ORDERS_TOKENS='{"a token of ada, long and random": "ada"}'
    projections schema install && python orders.py      # makes the tables
    uvicorn orders:app                                  # the application
    projections worker orders                           # the projection, in as many processes as you like
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field
from sqlalchemy import BigInteger, select
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from projections import (
    Changes,
    Event,
    EventEnvelope,
    Table,
    append,
    connect,
    handles,
    projection,
    wait_for,
)

DSN = os.environ["PROJECTIONS_DSN"]
engine = create_async_engine(make_url(DSN).set(drivername="postgresql+asyncpg"))
# By their digests, so the time of a look-up tells nothing about a token.
customers = {
    sha256(token.encode()).digest(): name
    for token, name in json.loads(os.environ.get("ORDERS_TOKENS", "{}")).items()
}
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    """The application's own table."""

    __tablename__ = "orders"

    order_id: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[int] = mapped_column(BigInteger)


class Turnover(Base):
    """The read model, which only the projection writes."""

    __tablename__ = "turnover"

    customer: Mapped[str] = mapped_column(primary_key=True)
    orders: Mapped[int] = mapped_column(BigInteger, server_default="0")
    amount: Mapped[int] = mapped_column(BigInteger, server_default="0")


class OrderPlaced(BaseModel):
    customer: str
    amount: int


TURNOVER = Table("turnover", key="customer", increment=("orders", "amount"))


@projection("turnover", entity_type="order")
class Turnovers:
    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced, envelope: EventEnvelope) -> Changes:
        return TURNOVER.upsert(customer=event.customer, orders=1, amount=event.amount)


class NewOrder(BaseModel):
    order_id: str = Field(min_length=1, max_length=100)
    amount: int = Field(gt=0)


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions() as opened:
        yield opened


def caller(given: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    """Return the customer who asks; the answers are about that one alone."""
    customer = customers.get(sha256(given.credentials.encode()).digest())
    if customer is None:
        raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})
    return customer


@asynccontextmanager
async def lifespan(application: FastAPI) -> AsyncIterator[None]:
    async with connect(DSN) as database:
        application.state.database = database
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
InSession = Annotated[AsyncSession, Depends(session)]
Caller = Annotated[str, Depends(caller)]


@app.post("/orders", status_code=201)
async def place(order: NewOrder, customer: Caller, session: InSession, response: Response) -> None:
    async with session.begin():
        session.add(Order(customer=customer, **order.model_dump()))
        await session.flush()
        placed = OrderPlaced(customer=customer, amount=order.amount)
        appended = await append(session, [Event(f"order-{order.order_id}", placed, "order")])
    response.headers["Projections-Token"] = appended.token


@app.get("/turnover")
async def turnover(customer: Caller, session: InSession, after: str | None = None) -> dict[str, int]:
    if after is not None:  # the token of a write that this answer must have
        await wait_for(app.state.database, "turnover", after)
    found = await session.scalar(select(Turnover).where(Turnover.customer == customer))
    return {"orders": found.orders if found else 0, "amount": found.amount if found else 0}


async def create_tables() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create_tables())
