"""What run events need beside the attempts: the milestones of a run, and when cases were settled apart from them."""

from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0011_run_events.sql").read_text("utf-8"))
