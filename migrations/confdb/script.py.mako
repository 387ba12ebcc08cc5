"""${message}.

What: TODO
Phase: expand | backfill | contract
Locks: TODO
Undo: TODO
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    # Rather fail than queue behind a long transaction, with every other statement queueing behind this one.
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${upgrades if upgrades else ""}


def downgrade() -> None:
    """Undo."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${downgrades if downgrades else ""}
