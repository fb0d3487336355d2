"""The schema of projections. After an update of the library, add a revision that calls install again."""

import os

from projections import install

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Install the schema, or upgrade it; it commits by itself, and changes nothing where it is of this version."""
    install(os.environ["PROJECTIONS_DSN"])


def downgrade() -> None:
    """Keep the schema: it holds events. `projections schema uninstall` removes it."""
