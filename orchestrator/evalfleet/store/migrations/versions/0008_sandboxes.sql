CREATE TYPE sandbox_state AS ENUM ('announced', 'made', 'gone', 'kept', 'lost');

CREATE TABLE sandboxes (
    attempt BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    made_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    ordinal INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    starts INTEGER DEFAULT 0 NOT NULL,
    state sandbox_state DEFAULT 'announced' NOT NULL,
    run TEXT NOT NULL,
    backend TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT,
    eval_id TEXT NOT NULL,
    host TEXT NOT NULL,
    template BYTEA NOT NULL,
    CONSTRAINT sandboxes_pkey PRIMARY KEY (owner, backend),
    CONSTRAINT sandboxes_ended_check CHECK ((state IN ('gone', 'lost')) = (ended_at IS NOT NULL)),
    CONSTRAINT sandboxes_template_check CHECK (octet_length(template) = 32)
);

CREATE INDEX sandboxes_open_idx ON sandboxes (backend) WHERE ended_at IS NULL;
