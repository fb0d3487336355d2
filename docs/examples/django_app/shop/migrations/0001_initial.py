"""Tables of the shop, and the schema of projections."""

import os
from typing import Any, ClassVar

from django.db import migrations, models

from projections import install


def install_projections(apps: Any, editor: Any) -> None:
    """Install the schema, or upgrade it; where it is of this version already, nothing changes."""
    install(os.environ["PROJECTIONS_DSN"])


class Migration(migrations.Migration):
    """The first one. After an update of the library, add one that runs install_projections again."""

    initial = True
    operations: ClassVar = [
        migrations.RunPython(install_projections, migrations.RunPython.noop),
        migrations.CreateModel(
            "Order",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.TextField()),
                ("amount", models.BigIntegerField()),
            ],
            options={"db_table": "shop_orders"},
        ),
        migrations.AddConstraint(
            "order", models.CheckConstraint(condition=models.Q(amount__gt=0), name="amount_is_positive")
        ),
        migrations.CreateModel(
            "Turnover",
            [
                ("customer", models.TextField(primary_key=True, serialize=False)),
                ("orders", models.BigIntegerField(db_default=0)),
                ("amount", models.BigIntegerField(db_default=0)),
            ],
            options={"db_table": "shop_turnover"},
        ),
    ]
