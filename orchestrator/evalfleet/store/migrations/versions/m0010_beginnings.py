"""How conversations began that another attempt can continue."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("ALTER TABLE recordings ADD COLUMN turns INTEGER")
