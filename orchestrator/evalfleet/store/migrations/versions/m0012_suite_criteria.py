"""How many criteria of its own a suite has: a run that has some is told as completed once they are evaluated."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("ALTER TABLE suites ADD COLUMN criteria INTEGER DEFAULT 0 NOT NULL")
