"""Rich output of jobs, how far they say they are, and an index by which one rank's output is read from either end."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "displays",
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("display_id", sa.String),
        sa.Column("is_update", sa.Integer, nullable=False),
        sa.Column("display", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "sequence"),
        sqlite_with_rowid=False,
    )
    op.add_column("jobs", sa.Column("progress", sa.LargeBinary))
    op.create_index("ix_logs_rank", "logs", ["job_id", "rank", "sequence"])
    op.create_table(
        "client_leases",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("renewals", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    raise NotImplementedError("A home is never taken back to an older schema: install the newer GPUlayer instead.")
