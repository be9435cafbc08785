"""The tables of a home's `metadata.db`, as SQLAlchemy sees them; `migrations/` makes them.

Whole messages (specs, devices, outcomes) are JSON in one column: they are read and written whole. What a guard, a filter or
an order needs has a column of its own. Tables without a row id are one tree instead of two, and a page less in each commit.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, PrimaryKeyConstraint, String, Table, UniqueConstraint, text

metadata = MetaData()

home = Table("home", metadata, Column("key", String, primary_key=True), Column("value", String, nullable=False))

jobs = Table(
    "jobs",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),  # the order of submission
    Column("id", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("idempotency_key", String, nullable=False),
    Column("request_digest", String, nullable=False),  # tells a repeated request from another one under the same key
    Column("spec", LargeBinary, nullable=False),
    Column("source", String),
    Column("inputs", LargeBinary, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("accelerator", String),  # NULL while `auto` is not fixed
    Column("requires", LargeBinary, nullable=False),  # what a worker has to report, torch for torchrun included
    Column("state", String, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("stop", String),  # NULL, "cancel" or "kill": what was asked of the job as a whole
    Column("failure", LargeBinary),  # the first failure of the present attempt
    Column("log_sequence", Integer, nullable=False),  # of the newest log chunk
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("progress", LargeBinary),  # the last word of the present attempt's rank 0 about it
    Column("requirements", String),  # digest of the file that its environment is built from
    UniqueConstraint("owner", "idempotency_key", name="uq_jobs_key"),
    Index("ix_jobs_unfinished", "sequence", sqlite_where=text("ended_at IS NULL")),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", String, nullable=False),
    Column("node", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("worker_id", String, nullable=False),
    Column("boot", String, nullable=False),
    Column("state", String, nullable=False),
    Column("stop", String),  # NULL or a stop order's reason
    Column("devices", LargeBinary, nullable=False),
    Column("ranks", LargeBinary),
    Column("outputs", LargeBinary),
    Column("placed_at", Float, nullable=False),
    Column("confirmed_at", Float),  # NULL: its worker never said that it knows
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("environment", LargeBinary),  # what its ranks found, where that is told
    PrimaryKeyConstraint("job_id", "node", "attempt"),
    # Of the live ones only: no move but the last touches it, and it stays as small as what is under way.
    Index("ix_attempts_live", "worker_id", sqlite_where=text("ended_at IS NULL")),
    sqlite_with_rowid=False,
)

# The primary key is the promise that no device is ever held by two attempts.
reservations = Table(
    "reservations",
    metadata,
    Column("worker_id", String, nullable=False),
    Column("device_id", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("node", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    PrimaryKeyConstraint("worker_id", "device_id"),
    sqlite_with_rowid=False,
)

rendezvous = Table(
    "rendezvous",
    metadata,
    Column("job_id", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("address", String, nullable=False),
    Column("port", Integer, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String, primary_key=True),
    Column("boot", String, nullable=False),  # empty once the worker has left
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("host", String, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("address", String, nullable=False),
    Column("python", String, nullable=False),
    Column("version", String, nullable=False),
    Column("protocol", Integer, nullable=False),
    Column("devices", LargeBinary, nullable=False),
    Column("frameworks", LargeBinary, nullable=False),
    Column("local", Integer, nullable=False),
    Column("state", String, nullable=False),  # alive, draining, gone
    Column("renewals", Integer, nullable=False),
    Column("registered_at", Float, nullable=False),
    Column("last_seen_at", Float, nullable=False),
    Index("ix_workers_state", "state"),
)

# The most workers that were alive at once with at least so many devices of a kind; simulated ones apart from real ones.
largest_groups = Table(
    "largest_groups",
    metadata,
    Column("accelerator", String, nullable=False),
    Column("simulated", Integer, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("workers", Integer, nullable=False),
    PrimaryKeyConstraint("accelerator", "simulated", "devices"),
)

logs = Table(
    "logs",
    metadata,
    Column("job_id", String, nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("node", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),  # -1: what the launcher itself printed
    Column("stream", String, nullable=False),
    Column("offset", Integer, nullable=False),
    Column("first_line", Integer, nullable=False),
    Column("time", Float, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job_id", "sequence"),
    UniqueConstraint("job_id", "attempt", "node", "rank", "stream", "offset", name="uq_logs_resend"),
    Index("ix_logs_rank", "job_id", "rank", "sequence"),
    sqlite_with_rowid=False,
)

# A row is a batch: what is asked of metrics is read in the order of their coming, and filtered as it is read.
metrics = Table(
    "metrics",
    metadata,
    Column("job_id", String, nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("node", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("points", LargeBinary, nullable=False),  # those that were kept
    PrimaryKeyConstraint("job_id", "sequence"),
    UniqueConstraint("job_id", "attempt", "node", "number", name="uq_metrics_resend"),
    sqlite_with_rowid=False,
)

# Of jobs that have metrics.
metric_totals = Table(
    "metric_totals",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("sequence", Integer, nullable=False),  # of the newest batch
    Column("received_values", Integer, nullable=False),
    Column("received", Integer, nullable=False),
    Column("kept", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    sqlite_with_rowid=False,
)

# Those that are to be seen: what an update or a clear takes away is deleted, so a job has a few hundred.
displays = Table(
    "displays",
    metadata,
    Column("job_id", String, nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("display_id", String),
    Column("is_update", Integer, nullable=False),
    Column("display", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job_id", "sequence"),
    sqlite_with_rowid=False,
)

# Of unfinished jobs that are bound to whoever renews this; the counter is judged, not a time of another machine.
client_leases = Table(
    "client_leases",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("seconds", Float, nullable=False),
    Column("renewals", Integer, nullable=False),
    sqlite_with_rowid=False,
)

tokens = Table(
    "tokens",
    metadata,
    Column("digest", String, primary_key=True),  # SHA-256 of the token, which is stored nowhere
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("worker_id", String),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("used_boot", String),  # a join token is good once: for this boot of this worker
)

# The newest row is never pruned, so ids only grow without the bookkeeping of AUTOINCREMENT.
changes = Table(
    "changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("topic", String, nullable=False),
)
