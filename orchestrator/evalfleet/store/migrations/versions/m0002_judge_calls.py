"""Judge calls as rows, and assertions of an attempt that was graded again beside its own."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0002_judge_calls.sql").read_text("utf-8"))
