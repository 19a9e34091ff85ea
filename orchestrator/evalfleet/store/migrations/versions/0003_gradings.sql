CREATE TYPE basis AS ENUM ('replayed', 'folded', 'kept');

ALTER TABLE runs ADD COLUMN grading SMALLINT DEFAULT 0 NOT NULL;

ALTER TABLE settlements ADD COLUMN from_grading SMALLINT DEFAULT 0 NOT NULL;

CREATE TABLE gradings (
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    run_key INTEGER NOT NULL,
    grading SMALLINT NOT NULL,
    evaluation SMALLINT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    sources TEXT NOT NULL,
    CONSTRAINT gradings_pkey PRIMARY KEY (run_key, grading),
    CONSTRAINT gradings_grading_check CHECK (grading > 0),
    CONSTRAINT gradings_run_key_fkey FOREIGN KEY (run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE judgements (
    attempt BIGINT NOT NULL,
    earned FLOAT(53),
    run_key INTEGER NOT NULL,
    basis basis NOT NULL,
    verdict verdict NOT NULL,
    kind failure_kind,
    score_state score_state,
    grading SMALLINT NOT NULL,
    source SMALLINT NOT NULL,
    sanitised BOOLEAN DEFAULT false NOT NULL,
    code TEXT,
    message TEXT,
    skip_reason TEXT,
    reason TEXT,
    number_marks TEXT,
    record BYTEA,
    CONSTRAINT judgements_pkey PRIMARY KEY (run_key, grading, attempt),
    CONSTRAINT judgements_source_check CHECK (source BETWEEN 0 AND grading),
    CONSTRAINT judgements_record_check CHECK ((source = grading) = (record IS NOT NULL)),
    CONSTRAINT judgements_kept_check CHECK ((basis = 'kept') = (source < grading))
);
