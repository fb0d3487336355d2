"""
Place an order, and look at the turnover of a customer.

Anybody may do both: an application of yours asks who the caller is, and answers about that customer alone.
"""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST

from projections import Event, append_sync
from shop.models import Order, Turnover
from shop.projections import OrderPlaced


@require_POST
def place(request: HttpRequest) -> JsonResponse:
    """Store an order and its event in one transaction."""
    customer, amount = request.POST["customer"], int(request.POST["amount"])
    with transaction.atomic():
        order = Order.objects.create(customer=customer, amount=amount)
        placed = OrderPlaced(customer=customer, amount=amount)
        append_sync(connection.connection, [Event(f"shop-order-{order.pk}", placed, "order")])
    return JsonResponse({"order": order.pk}, status=201)


@ensure_csrf_cookie
def turnover(request: HttpRequest, customer: str) -> JsonResponse:
    """Return what the projection has written."""
    found = Turnover.objects.filter(customer=customer).first()
    return JsonResponse({"orders": found.orders if found else 0, "amount": found.amount if found else 0})
