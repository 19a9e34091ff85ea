"""The codes of a run as a whole. PURE."""

from __future__ import annotations

from evalfleet.codes.tables import Chapter, CodeTable, ErrorCode

RUNS = Chapter(
    "Of a run as a whole",
    about="What the run settled stays, and `orchestrate resume` goes on with what is left; exit code 4.",
    tables=(
        CodeTable(
            "Carrying it out",
            codes=(
                ErrorCode(
                    "EVALUATION_OBSERVER_FAILED",
                    "what is told the [events](events.md) of the run raised, took too long over one, or closed the "
                    "pipe that it reads; the run was drained",
                    "the observer, which the message names the event for",
                ),
                ErrorCode("RUNNER_INTERNAL", "evalfleet itself is wrong", "report it, with what `--debug` adds"),
            ),
        ),
    ),
)
