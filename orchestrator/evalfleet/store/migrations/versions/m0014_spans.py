"""The spans that agents sent, as the bodies that they came in, and what became of those that were not kept."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE span_batches (
            attempt BIGINT NOT NULL, source BIGINT NOT NULL,
            at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            run_key INTEGER NOT NULL, batch INTEGER NOT NULL, spans INTEGER NOT NULL, encoding SMALLINT NOT NULL,
            body BYTEA NOT NULL,
            CONSTRAINT span_batches_pkey PRIMARY KEY (run_key, attempt, source, batch),
            CONSTRAINT span_batches_run_key_fkey FOREIGN KEY (run_key) REFERENCES runs (run_key) ON DELETE CASCADE
        )
    """)
    op.execute("ALTER TABLE span_batches ALTER COLUMN body SET STORAGE EXTERNAL")
    op.execute("""
        CREATE TABLE span_counts (
            source BIGINT NOT NULL, accepted BIGINT NOT NULL, late BIGINT NOT NULL, run_key INTEGER NOT NULL,
            dropped TEXT NOT NULL, refused TEXT NOT NULL,
            CONSTRAINT span_counts_pkey PRIMARY KEY (run_key, source),
            CONSTRAINT span_counts_run_key_fkey FOREIGN KEY (run_key) REFERENCES runs (run_key) ON DELETE CASCADE
        )
    """)
