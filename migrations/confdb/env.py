"""Run the migrations of confdb on the connection that `confdb.schema` hands over."""

from __future__ import annotations

from alembic import context

from confdb.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    # One at a time: a migration that fails leaves those before it in place, and may commit in between (indexes
    # concurrently).
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
