ALTER TABLE runs ADD COLUMN unknown_judge_cost BIGINT DEFAULT 0 NOT NULL;

ALTER TABLE runs ADD COLUMN judge_usd FLOAT(53) DEFAULT 0 NOT NULL;

UPDATE runs r SET judge_usd = j.judge_usd, unknown_judge_cost = j.unknown_judge_cost
FROM (
    SELECT run_key, coalesce(sum(cost_usd), 0) AS judge_usd,
           count(*) FILTER (WHERE NOT cached AND cost_usd IS NULL) AS unknown_judge_cost
    FROM judge_calls WHERE attempt >= 0 GROUP BY run_key
) j
WHERE r.run_key = j.run_key;
