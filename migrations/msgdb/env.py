"""Runs the message store's migrations on the connection that `msgdb.schema` gives."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
    # Each revision commits by itself: locks are short, and what is done stays done.
    transaction_per_migration=True,
)

with context.begin_transaction():
    context.run_migrations()
