"""The requirements that a job brings, and the environment that its ranks found."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("requirements", sa.String))
    op.add_column("attempts", sa.Column("environment", sa.LargeBinary))


def downgrade() -> None:
    raise NotImplementedError("A home is never taken back to an older schema: install the newer GPUlayer instead.")
