"""Run by alembic for each upgrade; the connection comes from `store/schema.py`, which also holds lock and transaction."""

from alembic import context

from gpulayer.control.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=False)
context.run_migrations()
