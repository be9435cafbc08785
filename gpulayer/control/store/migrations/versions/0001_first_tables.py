"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("home", sa.Column("key", sa.String, primary_key=True), sa.Column("value", sa.String, nullable=False))
    op.create_table(
        "jobs",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("idempotency_key", sa.String, nullable=False),
        sa.Column("request_digest", sa.String, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
        sa.Column("source", sa.String),
        sa.Column("inputs", sa.LargeBinary, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("accelerator", sa.String),
        sa.Column("requires", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("stop", sa.String),
        sa.Column("failure", sa.LargeBinary),
        sa.Column("log_sequence", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_jobs_key"),
    )
    op.create_index("ix_jobs_unfinished", "jobs", ["sequence"], sqlite_where=sa.text("ended_at IS NULL"))
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("worker_id", sa.String, nullable=False),
        sa.Column("boot", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("stop", sa.String),
        sa.Column("devices", sa.LargeBinary, nullable=False),
        sa.Column("ranks", sa.LargeBinary),
        sa.Column("outputs", sa.LargeBinary),
        sa.Column("placed_at", sa.Float, nullable=False),
        sa.Column("confirmed_at", sa.Float),
        sa.Column("started_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.PrimaryKeyConstraint("job_id", "node", "attempt"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_attempts_live", "attempts", ["worker_id"], sqlite_where=sa.text("ended_at IS NULL"))
    op.create_table(
        "reservations",
        sa.Column("worker_id", sa.String, nullable=False),
        sa.Column("device_id", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("worker_id", "device_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rendezvous",
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("address", sa.String, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("boot", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("boot_id", sa.String, nullable=False),
        sa.Column("address", sa.String, nullable=False),
        sa.Column("python", sa.String, nullable=False),
        sa.Column("version", sa.String, nullable=False),
        sa.Column("protocol", sa.Integer, nullable=False),
        sa.Column("devices", sa.LargeBinary, nullable=False),
        sa.Column("frameworks", sa.LargeBinary, nullable=False),
        sa.Column("local", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("renewals", sa.Integer, nullable=False),
        sa.Column("registered_at", sa.Float, nullable=False),
        sa.Column("last_seen_at", sa.Float, nullable=False),
    )
    op.create_index("ix_workers_state", "workers", ["state"])
    op.create_table(
        "largest_groups",
        sa.Column("accelerator", sa.String, nullable=False),
        sa.Column("simulated", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("workers", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("accelerator", "simulated", "devices"),
    )
    op.create_table(
        "logs",
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("stream", sa.String, nullable=False),
        sa.Column("offset", sa.Integer, nullable=False),
        sa.Column("first_line", sa.Integer, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "sequence"),
        sa.UniqueConstraint("job_id", "attempt", "node", "rank", "stream", "offset", name="uq_logs_resend"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("worker_id", sa.String),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
        sa.Column("used_boot", sa.String),
    )
    op.create_table(
        "changes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("topic", sa.String, nullable=False),
    )
    op.execute("INSERT INTO home (key, value) VALUES ('id', lower(hex(randomblob(8))))")


def downgrade() -> None:
    raise NotImplementedError("A home is never taken back to an older schema: install the newer GPUlayer instead.")
