"""Attempts that failed while their arm was paused for such failures: they don't count for their case."""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0007_excused.sql").read_text("utf-8"))
