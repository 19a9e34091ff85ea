"""Attempts whose turns contradict the coverage that their adapter declares."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0005_contradictions.sql").read_text("utf-8"))
