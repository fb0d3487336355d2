"""The table of a read model."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table, and let workers write it."""
    op.create_table(
        "turnover",
        sa.Column("customer", sa.Text, primary_key=True),
        sa.Column("orders", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("amount", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON turnover TO projections_worker")


def downgrade() -> None:
    """Drop the table. To have it built again later, clear the offset of its projection, or rebuild it."""
    op.drop_table("turnover")
