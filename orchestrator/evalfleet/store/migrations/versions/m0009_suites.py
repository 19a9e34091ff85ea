"""The suites that a run's cases come from, and what their own criteria came to."""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0009_suites.sql").read_text("utf-8"))
