CREATE TYPE run_kind AS ENUM ('sweep', 'try');

CREATE TYPE run_status AS ENUM ('queued', 'running', 'completed', 'cancelled', 'limited');

CREATE TYPE style AS ENUM ('pass', 'score');

CREATE TYPE outcome AS ENUM ('completed', 'errored', 'cancelled', 'interrupted', 'superseded');

CREATE TYPE verdict AS ENUM ('passed', 'failed', 'errored', 'skipped');

CREATE TYPE failure_kind AS ENUM (
    'agent', 'adapter', 'provider', 'sandbox', 'grader', 'judge', 'authoring', 'deadline', 'cancelled', 'worker', 'infrastructure'
);

CREATE TYPE score_state AS ENUM ('complete', 'partial', 'unavailable');

CREATE TYPE settlement AS ENUM ('attempt', 'carried', 'blocked', 'skipped', 'not_needed');

CREATE TYPE result AS ENUM ('matched', 'mismatched', 'unavailable', 'errored');

CREATE TYPE intent_kind AS ENUM ('lease', 'external');

CREATE TYPE operation_kind AS ENUM ('tool', 'subagent');

CREATE TYPE operation_status AS ENUM ('pending', 'completed', 'failed', 'rejected');

CREATE TABLE assertions (
    attempt BIGINT NOT NULL,
    run_key INTEGER NOT NULL,
    index INTEGER NOT NULL,
    result result NOT NULL,
    holds BOOLEAN,
    optional BOOLEAN NOT NULL,
    measurement FLOAT(53),
    points FLOAT(53),
    earned FLOAT(53),
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    label TEXT,
    key TEXT,
    reason TEXT,
    group_path TEXT,
    number_marks TEXT,
    CONSTRAINT assertions_pkey PRIMARY KEY (run_key, attempt, index)
);

CREATE TABLE attempts (
    attempt BIGINT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    duration FLOAT(53) NOT NULL,
    commit_seq BIGINT NOT NULL,
    run_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    number INTEGER NOT NULL,
    turns INTEGER DEFAULT 0 NOT NULL,
    events INTEGER DEFAULT 0 NOT NULL,
    assertions INTEGER DEFAULT 0 NOT NULL,
    outcome outcome NOT NULL,
    verdict verdict,
    kind failure_kind,
    score_state score_state,
    settles BOOLEAN DEFAULT false NOT NULL,
    blamed BOOLEAN DEFAULT false NOT NULL,
    arm SMALLINT NOT NULL,
    pages_complete BOOLEAN DEFAULT true NOT NULL,
    sanitised BOOLEAN DEFAULT false NOT NULL,
    earned FLOAT(53),
    estimated_usd FLOAT(53),
    cost_usd FLOAT(53),
    input_tokens BIGINT,
    output_tokens BIGINT,
    cache_read_tokens BIGINT,
    cache_write_tokens BIGINT,
    reasoning_tokens BIGINT,
    requests BIGINT,
    unknown_calls BIGINT,
    worker TEXT NOT NULL,
    code TEXT,
    message TEXT,
    skip_reason TEXT,
    reply TEXT,
    number_marks TEXT,
    record BYTEA,
    CONSTRAINT attempts_pkey PRIMARY KEY (run_key, attempt),
    CONSTRAINT attempts_number_check CHECK (number > 0),
    CONSTRAINT attempts_settles_check CHECK (outcome <> 'superseded' OR NOT settles),
    CONSTRAINT attempts_interrupted_check CHECK (outcome <> 'interrupted' OR kind IS NOT NULL)
);

CREATE UNIQUE INDEX attempts_run_key_ordinal_number_key ON attempts (run_key, ordinal, number);

CREATE TABLE cases (
    run_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    repetition INTEGER NOT NULL,
    style style NOT NULL,
    arm SMALLINT NOT NULL,
    external BOOLEAN NOT NULL,
    content BYTEA NOT NULL,
    fingerprint BYTEA,
    eval_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    row BYTEA,
    variants TEXT,
    tags TEXT[],
    CONSTRAINT cases_pkey PRIMARY KEY (run_key, ordinal),
    CONSTRAINT cases_position_check CHECK (ordinal >= 0 AND repetition >= 0),
    CONSTRAINT cases_digests_check CHECK (octet_length(content) = 32 AND octet_length(fingerprint) = 32)
);

CREATE INDEX cases_fingerprint_idx ON cases USING hash (fingerprint);

CREATE TABLE event_pages (
    attempt BIGINT NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    run_key INTEGER NOT NULL,
    page INTEGER NOT NULL,
    raw_size INTEGER NOT NULL,
    body BYTEA NOT NULL,
    CONSTRAINT event_pages_pkey PRIMARY KEY (run_key, attempt, page),
    CONSTRAINT event_pages_range_check CHECK (first <= last)
);

CREATE TABLE intents (
    attempt BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    run_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    kind intent_kind NOT NULL,
    worker TEXT NOT NULL,
    CONSTRAINT intents_pkey PRIMARY KEY (run_key, attempt)
);

CREATE INDEX intents_open_idx ON intents (run_key) WHERE closed_at IS NULL;

CREATE TABLE runs (
    run_key INTEGER GENERATED ALWAYS AS IDENTITY,
    epoch BIGINT DEFAULT 0 NOT NULL,
    commit_seq BIGINT DEFAULT 0 NOT NULL,
    total BIGINT DEFAULT 0 NOT NULL,
    attempts BIGINT DEFAULT 0 NOT NULL,
    failures BIGINT DEFAULT 0 NOT NULL,
    tokens BIGINT DEFAULT 0 NOT NULL,
    unknown_cost BIGINT DEFAULT 0 NOT NULL,
    spent_usd FLOAT(53) DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    beat TIMESTAMP WITH TIME ZONE,
    cancel_requested_at TIMESTAMP WITH TIME ZONE,
    deleted_at TIMESTAMP WITH TIME ZONE,
    holder_pid INTEGER,
    kind run_kind NOT NULL,
    status run_status DEFAULT 'queued' NOT NULL,
    id TEXT NOT NULL,
    holder TEXT,
    holder_host TEXT,
    name TEXT NOT NULL,
    project TEXT NOT NULL,
    digest TEXT NOT NULL,
    idempotency_sha256 BYTEA,
    derived_from TEXT,
    stop_reason TEXT,
    paused_by TEXT,
    experiment TEXT NOT NULL,
    lock TEXT NOT NULL,
    CONSTRAINT runs_pkey PRIMARY KEY (run_key),
    CONSTRAINT runs_counters_check CHECK (epoch >= 0 AND commit_seq >= 0 AND total >= 0),
    CONSTRAINT runs_idempotency_check CHECK (octet_length(idempotency_sha256) = 32),
    CONSTRAINT runs_id_check CHECK (octet_length(id) BETWEEN 1 AND 64)
);

CREATE UNIQUE INDEX runs_id_key ON runs (id text_pattern_ops);

CREATE UNIQUE INDEX runs_idempotency_sha256_key ON runs (idempotency_sha256);

CREATE TABLE settlements (
    attempt BIGINT,
    run_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    how settlement NOT NULL,
    verdict verdict,
    kind failure_kind,
    score_state score_state,
    earned FLOAT(53),
    code TEXT,
    from_run TEXT,
    from_attempt BIGINT,
    superseded_at TIMESTAMP WITH TIME ZONE,
    reopening INTEGER,
    CONSTRAINT settlements_attempt_check CHECK ((how = 'attempt') = (attempt IS NOT NULL)),
    CONSTRAINT settlements_carried_check CHECK ((how = 'carried') = (from_run IS NOT NULL)),
    CONSTRAINT settlements_verdict_check CHECK (how NOT IN ('attempt', 'carried') OR verdict IS NOT NULL),
    CONSTRAINT settlements_superseded_check CHECK ((superseded_at IS NULL) = (reopening IS NULL))
);

CREATE INDEX settlements_from_run_idx ON settlements (from_run) WHERE from_run IS NOT NULL;

CREATE UNIQUE INDEX settlements_run_key_ordinal_key ON settlements (run_key, ordinal)
    WHERE superseded_at IS NULL;

CREATE INDEX settlements_superseded_idx ON settlements (run_key, ordinal, superseded_at)
    WHERE superseded_at IS NOT NULL;

CREATE INDEX settlements_without_attempt_idx ON settlements (run_key, ordinal)
    WHERE attempt IS NULL AND superseded_at IS NULL;

CREATE TABLE tool_calls (
    attempt BIGINT NOT NULL,
    run_key INTEGER NOT NULL,
    step INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    operation operation_kind NOT NULL,
    status operation_status,
    operation_id TEXT NOT NULL,
    name TEXT NOT NULL,
    tool TEXT,
    arguments TEXT,
    result TEXT,
    CONSTRAINT tool_calls_pkey PRIMARY KEY (run_key, attempt, step)
);

CREATE TABLE arms (
    cases BIGINT NOT NULL,
    run_key INTEGER NOT NULL,
    style style,
    arm SMALLINT NOT NULL,
    repeated BOOLEAN NOT NULL,
    name TEXT NOT NULL,
    settings TEXT NOT NULL,
    CONSTRAINT arms_pkey PRIMARY KEY (run_key, arm),
    CONSTRAINT arms_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE artifacts (
    size BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    run_key INTEGER NOT NULL,
    sha256 BYTEA NOT NULL,
    media_type TEXT NOT NULL,
    name TEXT NOT NULL,
    CONSTRAINT artifacts_pkey PRIMARY KEY (run_key, sha256),
    CONSTRAINT artifacts_sha256_check CHECK (octet_length(sha256) = 32),
    CONSTRAINT artifacts_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE case_blocks (
    run_key INTEGER NOT NULL,
    block INTEGER NOT NULL,
    unsettled INTEGER NOT NULL,
    CONSTRAINT case_blocks_pkey PRIMARY KEY (run_key, block),
    CONSTRAINT case_blocks_unsettled_check CHECK (unsettled BETWEEN 0 AND 1024),
    CONSTRAINT case_blocks_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE datasets (
    rows BIGINT NOT NULL,
    run_key INTEGER NOT NULL,
    position INTEGER NOT NULL,
    definition TEXT NOT NULL,
    uri TEXT NOT NULL,
    revision TEXT,
    sha256 BYTEA NOT NULL,
    CONSTRAINT datasets_pkey PRIMARY KEY (run_key, position),
    CONSTRAINT datasets_sha256_check CHECK (octet_length(sha256) = 32),
    CONSTRAINT datasets_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE edits (
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    edit_key BIGINT GENERATED ALWAYS AS IDENTITY,
    run_key INTEGER NOT NULL,
    field TEXT NOT NULL,
    before TEXT,
    after TEXT,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    CONSTRAINT edits_pkey PRIMARY KEY (edit_key),
    CONSTRAINT edits_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE INDEX edits_run_key_idx ON edits (run_key);

CREATE TABLE labels (
    attempt BIGINT,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    label_key BIGINT GENERATED ALWAYS AS IDENTITY,
    run_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    label TEXT NOT NULL,
    author TEXT NOT NULL,
    note TEXT,
    CONSTRAINT labels_pkey PRIMARY KEY (label_key),
    CONSTRAINT labels_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE INDEX labels_run_key_ordinal_idx ON labels (run_key, ordinal);

CREATE TABLE reopenings (
    run_key INTEGER NOT NULL,
    reopening INTEGER NOT NULL,
    commit_seq BIGINT NOT NULL,
    cases BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    retry TEXT NOT NULL,
    CONSTRAINT reopenings_pkey PRIMARY KEY (run_key, reopening),
    CONSTRAINT reopenings_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

CREATE TABLE run_progress (
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    run_key INTEGER NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT run_progress_pkey PRIMARY KEY (run_key),
    CONSTRAINT run_progress_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE
);

ALTER TABLE runs SET (fillfactor = 50, toast_tuple_target = 128);

ALTER TABLE case_blocks SET (fillfactor = 50);

ALTER TABLE run_progress SET (fillfactor = 50);
