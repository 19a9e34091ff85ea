"""What attempts may spend, written before they do, and what they have spent."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute("ALTER TYPE intent_kind ADD VALUE 'spend'")
    op.execute("""
        ALTER TABLE intents
            ADD COLUMN reserved_nanos BIGINT DEFAULT 0 NOT NULL, ADD COLUMN reserved_tokens BIGINT DEFAULT 0 NOT NULL,
            ADD COLUMN spent_nanos BIGINT, ADD COLUMN spent_tokens BIGINT,
            ADD COLUMN possible_nanos BIGINT, ADD COLUMN possible_tokens BIGINT
    """)
