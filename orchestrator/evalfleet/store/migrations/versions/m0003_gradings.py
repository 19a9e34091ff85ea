"""Attempts judged again: each grading of a run, what it says of every settled attempt, and which one counts."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0003_gradings.sql").read_text("utf-8"))
