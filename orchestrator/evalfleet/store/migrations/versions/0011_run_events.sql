CREATE TYPE run_mark AS ENUM ('run.started', 'run.resumed', 'run.completed');

CREATE TABLE run_marks (
    commit_seq BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    run_key INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    type run_mark NOT NULL,
    status run_status,
    CONSTRAINT run_marks_pkey PRIMARY KEY (run_key, mark),
    CONSTRAINT run_marks_run_key_fkey FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE,
    CONSTRAINT run_marks_status_check CHECK ((type = 'run.completed') = (status IS NOT NULL))
);

ALTER TABLE runs ADD COLUMN marks INTEGER DEFAULT 0 NOT NULL;

ALTER TABLE settlements ADD COLUMN commit_seq BIGINT;

INSERT INTO run_marks (run_key, mark, commit_seq, type, at)
SELECT run_key, 1, 0, 'run.started', started_at FROM runs WHERE started_at IS NOT NULL;

INSERT INTO run_marks (run_key, mark, commit_seq, type, status, at)
SELECT run_key, 2, commit_seq, 'run.completed', status, finished_at FROM runs
WHERE started_at IS NOT NULL AND finished_at IS NOT NULL;

UPDATE runs r SET marks = m.marks
FROM (SELECT run_key, max(mark) AS marks FROM run_marks GROUP BY run_key) m WHERE r.run_key = m.run_key;

UPDATE settlements SET commit_seq = 0 WHERE attempt IS NULL AND how <> 'carried';

UPDATE settlements s SET commit_seq = a.commit_seq
FROM attempts a WHERE a.run_key = s.run_key AND a.attempt = s.attempt AND a.outcome = 'interrupted';

CREATE INDEX attempts_run_key_commit_seq_idx ON attempts (run_key, commit_seq);

CREATE INDEX settlements_run_key_commit_seq_idx ON settlements (run_key, commit_seq) WHERE commit_seq IS NOT NULL;
