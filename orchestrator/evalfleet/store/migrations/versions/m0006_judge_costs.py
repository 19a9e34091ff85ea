"""What a run has spent on judges, apart from its agents."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(Path(__file__).with_name("0006_judge_costs.sql").read_text("utf-8"))
