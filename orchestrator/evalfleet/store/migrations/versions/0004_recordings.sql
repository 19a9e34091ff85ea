CREATE TABLE recordings (
    attempt BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    run_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    body BYTEA NOT NULL,
    CONSTRAINT recordings_pkey PRIMARY KEY (run_key, ordinal)
);
