"""The tables of the record store, as migrations build them. Only migrations and the schema test import this.

Every table is keyed by the internal `run_key` beside which `runs.id` is the public text. Wide columns stand
first, so that alignment wastes nothing in the tables that grow by a row per case.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from evalfleet.store.columns import (
    FAILURE_KIND,
    INTENT_KIND,
    RUN_KIND,
    RUN_MARK,
    RUN_STATUS,
    SANDBOX_STATE,
    SCORE_STATE,
    SETTLEMENT,
    STYLE,
    TIME,
    VERDICT,
    maybe,
    metadata,
    now,
    of,
    run_owned,
)

runs = Table(
    "runs",
    metadata,
    Column("run_key", Integer, Identity(always=True), primary_key=True),
    of("epoch", BigInteger, "0"),
    of("commit_seq", BigInteger, "0"),
    of("total", BigInteger, "0"),
    of("attempts", BigInteger, "0"),
    of("failures", BigInteger, "0"),  # errored cases since the run was begun or last resumed
    of("tokens", BigInteger, "0"),
    of("unknown_cost", BigInteger, "0"),
    of("spent_usd", Float(53), "0"),
    of("unknown_judge_cost", BigInteger, "0"),  # of judge calls, those of later gradings included
    of("judge_usd", Float(53), "0"),
    now("created_at"),
    maybe("started_at", TIME),
    maybe("finished_at", TIME),
    maybe("beat", TIME),
    maybe("cancel_requested_at", TIME),
    maybe("deleted_at", TIME),
    maybe("holder_pid", Integer),
    of("kind", RUN_KIND),
    of("status", RUN_STATUS, "'queued'"),
    of("id", Text),
    maybe("holder", Text),
    maybe("holder_host", Text),
    of("name", Text),
    of("project", Text),
    of("digest", Text),
    maybe("idempotency_sha256", LargeBinary),
    maybe("derived_from", Text),
    maybe("stop_reason", Text),
    maybe("paused_by", Text),
    of("experiment", Text),
    of("lock", Text),
    of("grading", SmallInteger, "0"),  # the one that counts
    of("marks", Integer, "0"),  # how many there are of it in `run_marks`
    CheckConstraint("epoch >= 0 AND commit_seq >= 0 AND total >= 0", name="counters"),
    CheckConstraint("octet_length(idempotency_sha256) = 32", name="idempotency"),
    CheckConstraint("octet_length(id) BETWEEN 1 AND 64", name="id"),
    Index("runs_id_key", "id", unique=True, postgresql_ops={"id": "text_pattern_ops"}),
    Index("runs_idempotency_sha256_key", "idempotency_sha256", unique=True),
)

#: The milestones of a run, numbered from 1: each stands after the commit `commit_seq`. All other run events are
#: derived from what commits write anyway.
run_marks = Table(
    "run_marks",
    metadata,
    of("commit_seq", BigInteger),
    now("at"),
    of("run_key", Integer),
    of("mark", Integer),
    of("type", RUN_MARK),
    maybe("status", RUN_STATUS),
    PrimaryKeyConstraint("run_key", "mark"),
    run_owned(),
    CheckConstraint("(type = 'run.completed') = (status IS NOT NULL)", name="status"),
)

arms = Table(
    "arms",
    metadata,
    of("cases", BigInteger),
    of("run_key", Integer),
    maybe("style", STYLE),
    of("arm", SmallInteger),
    of("repeated", Boolean),
    of("name", Text),
    of("settings", Text),
    PrimaryKeyConstraint("run_key", "arm"),
    run_owned(),
)

cases = Table(
    "cases",
    metadata,
    of("run_key", Integer),
    of("ordinal", Integer),
    of("repetition", Integer),
    of("style", STYLE),
    of("arm", SmallInteger),
    of("external", Boolean),
    of("content", LargeBinary),
    maybe("fingerprint", LargeBinary),
    of("eval_id", Text),
    of("definition", Text),
    maybe("row", LargeBinary),
    maybe("variants", Text),
    maybe("tags", ARRAY(Text)),
    PrimaryKeyConstraint("run_key", "ordinal"),
    CheckConstraint("ordinal >= 0 AND repetition >= 0", name="position"),
    CheckConstraint("octet_length(content) = 32 AND octet_length(fingerprint) = 32", name="digests"),
    # a hash index: a fifth of a b-tree's size for 32 random bytes, and only equality is ever asked
    Index("cases_fingerprint_idx", "fingerprint", postgresql_using="hash"),
)

#: How many cases of each 1,024 ordinals are unsettled: lets a resume skip a million settled ones in one look.
case_blocks = Table(
    "case_blocks",
    metadata,
    of("run_key", Integer),
    of("block", Integer),
    of("unsettled", Integer),
    PrimaryKeyConstraint("run_key", "block"),
    CheckConstraint("unsettled BETWEEN 0 AND 1024", name="unsettled"),
    run_owned(),
)

settlements = Table(
    "settlements",
    metadata,
    maybe("attempt", BigInteger),
    of("run_key", Integer),
    of("ordinal", Integer),
    of("how", SETTLEMENT),
    maybe("verdict", VERDICT),
    maybe("kind", FAILURE_KIND),
    maybe("score_state", SCORE_STATE),
    maybe("earned", Float(53)),
    maybe("code", Text),
    maybe("from_run", Text),
    maybe("from_attempt", BigInteger),
    maybe("superseded_at", TIME),
    maybe("reopening", Integer),
    of("from_grading", SmallInteger, "0"),
    maybe("commit_seq", BigInteger),  # where no attempt of that commit decides the case; none if carried
    Index(
        "settlements_run_key_ordinal_key",
        "run_key",
        "ordinal",
        unique=True,
        postgresql_where=text("superseded_at IS NULL"),
    ),
    Index(
        "settlements_superseded_idx",
        "run_key",
        "ordinal",
        "superseded_at",
        postgresql_where=text("superseded_at IS NOT NULL"),
    ),
    Index(
        "settlements_without_attempt_idx",
        "run_key",
        "ordinal",
        postgresql_where=text("attempt IS NULL AND superseded_at IS NULL"),
    ),
    Index(
        "settlements_run_key_commit_seq_idx",
        "run_key",
        "commit_seq",
        postgresql_where=text("commit_seq IS NOT NULL"),
    ),
    Index("settlements_from_run_idx", "from_run", postgresql_where=text("from_run IS NOT NULL")),
    CheckConstraint("(how = 'attempt') = (attempt IS NOT NULL)", name="attempt"),
    CheckConstraint("(how = 'carried') = (from_run IS NOT NULL)", name="carried"),
    CheckConstraint("how NOT IN ('attempt', 'carried') OR verdict IS NOT NULL", name="verdict"),
    CheckConstraint("(superseded_at IS NULL) = (reopening IS NULL)", name="superseded"),
)

reopenings = Table(
    "reopenings",
    metadata,
    of("run_key", Integer),
    of("reopening", Integer),
    of("commit_seq", BigInteger),
    of("cases", BigInteger),
    now("at"),
    of("who", Text),
    of("why", Text),
    of("retry", Text),
    PrimaryKeyConstraint("run_key", "reopening"),
    run_owned(),
)

#: Each time that all settled attempts of a run were judged again; what came of them stands in `judgements`.
gradings = Table(
    "gradings",
    metadata,
    now("at"),
    of("run_key", Integer),
    of("grading", SmallInteger),
    of("evaluation", SmallInteger),
    of("who", Text),
    of("why", Text),
    of("sources", Text),
    PrimaryKeyConstraint("run_key", "grading"),
    CheckConstraint("grading > 0", name="grading"),
    run_owned(),
)

intents = Table(
    "intents",
    metadata,
    of("attempt", BigInteger),
    of("epoch", BigInteger),
    now("created_at"),
    maybe("closed_at", TIME),
    of("run_key", Integer),
    of("ordinal", Integer),
    of("kind", INTENT_KIND),
    of("worker", Text),
    of("reserved_nanos", BigInteger, "0"),
    of("reserved_tokens", BigInteger, "0"),
    maybe("spent_nanos", BigInteger),
    maybe("spent_tokens", BigInteger),
    maybe("possible_nanos", BigInteger),
    maybe("possible_tokens", BigInteger),
    PrimaryKeyConstraint("run_key", "attempt"),
    Index("intents_open_idx", "run_key", postgresql_where=text("closed_at IS NULL")),
)

# the evidence of attempts that nothing has judged yet; a row goes with the commit that settles its case
recordings = Table(
    "recordings",
    metadata,
    of("attempt", BigInteger),
    now("created_at"),
    of("run_key", Integer),
    of("ordinal", Integer),
    of("body", LargeBinary),
    maybe("turns", Integer),  # of a conversation that is not over
    PrimaryKeyConstraint("run_key", "ordinal"),
)

#: Of machines and not of results: they are not exported, and stay until the sandbox is gone when their run is deleted.
sandboxes = Table(
    "sandboxes",
    metadata,
    of("attempt", BigInteger),
    now("created_at"),
    of("expires_at", TIME),
    maybe("made_at", TIME),
    maybe("ended_at", TIME),
    of("ordinal", Integer),
    of("pid", Integer),
    of("starts", Integer, "0"),
    of("state", SANDBOX_STATE, "'announced'"),
    of("run", Text),
    of("backend", Text),
    of("owner", Text),
    maybe("id", Text),
    of("eval_id", Text),
    of("host", Text),
    of("template", LargeBinary),
    PrimaryKeyConstraint("owner", "backend"),
    CheckConstraint("(state IN ('gone', 'lost')) = (ended_at IS NOT NULL)", name="ended"),
    CheckConstraint("octet_length(template) = 32", name="template"),
    Index("sandboxes_open_idx", "backend", postgresql_where=text("ended_at IS NULL")),
)

datasets = Table(
    "datasets",
    metadata,
    of("rows", BigInteger),
    of("run_key", Integer),
    of("position", Integer),
    of("definition", Text),
    of("uri", Text),
    maybe("revision", Text),
    of("sha256", LargeBinary),
    PrimaryKeyConstraint("run_key", "position"),
    CheckConstraint("octet_length(sha256) = 32", name="sha256"),
    run_owned(),
)

#: The suites that a run's cases come from, as they were planned.
suites = Table(
    "suites",
    metadata,
    of("run_key", Integer),
    of("position", Integer),
    of("criteria", Integer, "0"),  # how many of its own; a run that has some ends when they are evaluated
    of("suite", Text),
    of("document", LargeBinary),
    PrimaryKeyConstraint("run_key", "suite"),
    run_owned(),
)

#: What a suite's own criteria came to over all its cases of one arm.
suite_results = Table(
    "suite_results",
    metadata,
    now("at"),
    of("run_key", Integer),
    of("arm", SmallInteger),
    of("suite", Text),
    of("results", LargeBinary),
    PrimaryKeyConstraint("run_key", "suite", "arm"),
    run_owned(),
)

run_progress = Table(
    "run_progress",
    metadata,
    of("at", TIME),
    of("run_key", Integer),
    of("body", Text),
    PrimaryKeyConstraint("run_key"),
    run_owned(),
)

labels = Table(
    "labels",
    metadata,
    maybe("attempt", BigInteger),
    now("at"),
    Column("label_key", BigInteger, Identity(always=True), primary_key=True),
    of("run_key", Integer),
    of("ordinal", Integer),
    of("label", Text),
    of("author", Text),
    maybe("note", Text),
    Index("labels_run_key_ordinal_idx", "run_key", "ordinal"),
    run_owned(),
)

#: Append-only: every change that a person made to a run after it was planned, with author and reason.
edits = Table(
    "edits",
    metadata,
    now("at"),
    Column("edit_key", BigInteger, Identity(always=True), primary_key=True),
    of("run_key", Integer),
    of("field", Text),
    maybe("before", Text),
    maybe("after", Text),
    of("author", Text),
    of("reason", Text),
    Index("edits_run_key_idx", "run_key"),
    run_owned(),
)

#: Storage settings, which SQLAlchemy has no words for: a row that is updated often keeps room on its page, and
#: the long snapshots leave the hot row of a run.
STORAGE = (
    "ALTER TABLE runs SET (fillfactor = 50, toast_tuple_target = 128)",
    "ALTER TABLE case_blocks SET (fillfactor = 50)",
    "ALTER TABLE run_progress SET (fillfactor = 50)",
)
