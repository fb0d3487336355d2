"""
Alembic, online: the database is that of PROJECTIONS_DSN.

pip install slice-projections alembic, then: alembic upgrade head
"""

import os

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

engine = create_engine(make_url(os.environ["PROJECTIONS_DSN"]).set(drivername="postgresql+psycopg"))
with engine.connect() as connection:
    # A transaction for each revision: the schema of projections is there before a table of the next one is made.
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
