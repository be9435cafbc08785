"""Metrics of jobs, and how many came and were kept."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("points", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "sequence"),
        sa.UniqueConstraint("job_id", "attempt", "node", "number", name="uq_metrics_resend"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metric_totals",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("received_values", sa.Integer, nullable=False),
        sa.Column("received", sa.Integer, nullable=False),
        sa.Column("kept", sa.Integer, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    raise NotImplementedError("A home is never taken back to an older schema: install the newer GPUlayer instead.")
