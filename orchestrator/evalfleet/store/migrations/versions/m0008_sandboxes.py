"""Sandboxes that outlive the process that makes them, each announced before there is one."""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0008_sandboxes.sql").read_text("utf-8"))
