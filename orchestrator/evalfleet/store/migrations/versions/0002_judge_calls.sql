ALTER TABLE assertions ADD COLUMN grading SMALLINT DEFAULT 0 NOT NULL;

ALTER TABLE assertions DROP CONSTRAINT assertions_pkey;

ALTER TABLE assertions ADD CONSTRAINT assertions_pkey PRIMARY KEY (run_key, attempt, grading, index);

CREATE TABLE judge_calls (
    attempt BIGINT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    latency FLOAT(53) NOT NULL,
    score FLOAT(53),
    cost_usd FLOAT(53),
    input_tokens BIGINT,
    output_tokens BIGINT,
    cache_read_tokens BIGINT,
    reasoning_tokens BIGINT,
    run_key INTEGER NOT NULL,
    call INTEGER NOT NULL,
    assertion INTEGER NOT NULL,
    repetition INTEGER NOT NULL,
    vote SMALLINT NOT NULL,
    version SMALLINT NOT NULL,
    tries SMALLINT NOT NULL,
    grading SMALLINT DEFAULT 0 NOT NULL,
    cached BOOLEAN NOT NULL,
    request BYTEA NOT NULL,
    prompt BYTEA NOT NULL,
    recipe TEXT NOT NULL,
    model TEXT NOT NULL,
    label TEXT,
    rationale TEXT,
    repairs TEXT,
    code TEXT,
    message TEXT,
    number_marks TEXT,
    reply BYTEA,
    CONSTRAINT judge_calls_pkey PRIMARY KEY (run_key, attempt, grading, call),
    CONSTRAINT judge_calls_digests_check CHECK (octet_length(request) = 32 AND octet_length(prompt) = 32),
    CONSTRAINT judge_calls_score_check CHECK (score BETWEEN 0 AND 1),
    CONSTRAINT judge_calls_answered_check CHECK (code IS NOT NULL OR reply IS NOT NULL AND score IS NOT NULL)
);

CREATE INDEX judge_calls_request_idx ON judge_calls (request, repetition, vote) WHERE code IS NULL AND NOT cached;
