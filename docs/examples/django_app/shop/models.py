"""The application's own table, and the read model."""

from typing import ClassVar

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    customer = models.TextField()
    amount = models.BigIntegerField()

    class Meta:
        db_table = "shop_orders"
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(amount__gt=0), name="amount_is_positive")
        ]


class Turnover(models.Model):
    """What a customer has ordered; only the projection writes it."""

    customer = models.TextField(primary_key=True)
    orders = models.BigIntegerField(db_default=0)
    amount = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "shop_turnover"
