"""Attempts whose agent is done and that wait to be judged."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0004_recordings.sql").read_text("utf-8"))
