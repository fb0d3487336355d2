"""Events and projections: what `projections worker shop.projections` runs. It needs nothing of Django."""

from pydantic import BaseModel

from projections import Changes, EventEnvelope, Table, handles, projection


class OrderPlaced(BaseModel):
    """A customer has ordered."""

    customer: str
    amount: int


TURNOVER = Table("shop_turnover", key="customer", increment=("orders", "amount"))


@projection("shop-turnover", entity_type="order")
class Turnovers:
    """Counts and sums the orders of each customer."""

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced, envelope: EventEnvelope) -> Changes:
        """Count an order."""
        return TURNOVER.upsert(customer=event.customer, orders=1, amount=event.amount)
