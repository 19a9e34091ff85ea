CREATE TABLE suites (
    run_key INTEGER NOT NULL,
    position INTEGER NOT NULL,
    suite TEXT NOT NULL,
    document BYTEA NOT NULL,
    CONSTRAINT suites_pkey PRIMARY KEY (run_key, suite),
    CONSTRAINT suites_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE suite_results (
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    run_key INTEGER NOT NULL,
    arm SMALLINT NOT NULL,
    suite TEXT NOT NULL,
    results BYTEA NOT NULL,
    CONSTRAINT suite_results_pkey PRIMARY KEY (run_key, suite, arm),
    CONSTRAINT suite_results_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);
