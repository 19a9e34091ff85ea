"""The record store as it began. Its DDL stands in the SQL file beside, for people to read."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0001_record_store.sql").read_text("utf-8"))
