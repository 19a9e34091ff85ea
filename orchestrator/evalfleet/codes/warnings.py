"""The codes of warnings. PURE."""

from __future__ import annotations

from evalfleet.codes.tables import Chapter, CodeTable, ErrorCode

_OF_DEFINITIONS = CodeTable(
    "Of definitions",
    about="What `orchestrate list --lint` says of definitions that are legal and probably not meant.",
    codes=(
        ErrorCode("NO_DESCRIPTION", "an eval has no `description`"),
        ErrorCode("NO_CRITERIA", "a scenario has no criterion, so it passes whatever the agent does"),
        ErrorCode("UNKNOWN_TAG", "a selection names a tag that no eval has: `orchestrate plan` says so"),
        ErrorCode("JUDGE_NOT_ASKED", "an eval declares a judge, and nothing in its file asks one"),
        ErrorCode(
            "ROWS_NAMED_BY_POSITION", "a dataset has no key column, so that inserting a row renames those after it"
        ),
        ErrorCode("REPEATED_ROW", "two rows of a dataset are the same"),
        ErrorCode(
            "TASK_SETTING_IGNORED", "a setting of a `task.toml` is not known here, or about nothing that happens here"
        ),
        ErrorCode("OVERLOOKED_FILE", "a file looks like an eval and is none by its name"),
    ),
)

_OF_ATTEMPTS = CodeTable(
    "Of attempts",
    about="What the diagnostics of an attempt say (`orchestrate show RUN CASE --diagnostics`); it decides nothing.",
    codes=(
        ErrorCode(
            "COVERAGE_CONTRADICTED",
            "the adapter declares a channel complete that the turns show is not: tokens that are not known, calls"
            " that never finish or never started, text in `data` that was not said, a failure without a reason",
            "declare the channel partial, with the reason, or report what is missing",
        ),
    ),
)

WARNINGS = Chapter(
    "Warnings",
    about="They refuse nothing and decide nothing.",
    tables=(_OF_DEFINITIONS, _OF_ATTEMPTS),
)
