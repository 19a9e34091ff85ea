"""The codes of what is wrong with definitions. PURE."""

from __future__ import annotations

from evalfleet.codes.tables import Chapter, CodeTable, ErrorCode

_EVAL_FILES = CodeTable(
    "Eval files",
    codes=(
        ErrorCode(
            "IMPORT_FAILED", "the file can't be read, or raises when it is imported", "fix what the message quotes"
        ),
        ErrorCode(
            "INVALID_EXPORT",
            "no eval is defined, `evals` is empty, or something in it is no definition",
            "export one definition, or one list or dict named `evals`",
        ),
        ErrorCode(
            "MULTIPLE_DEFINITIONS",
            "more than one definition, with both lines",
            "put them into `evals`, or into files of their own",
        ),
        ErrorCode("DUPLICATE_ID", "two files, or two rows, claim one id", "rename one"),
        ErrorCode(
            "INVALID_ID", "a part of an id is empty, too long, or holds a slash or control character", "rename it"
        ),
        ErrorCode(
            "UNKNOWN_EVAL",
            "the eval that a worker was sent, that a run to be judged again has cases of, or that failed in the run of "
            "`--affected-by`, is not there any more",
            "resubmit, or name the project that has it (`rescore --evals`)",
        ),
        ErrorCode("UNKNOWN_OPTION", "`define_eval` has no such option", "the message names the nearest one"),
        ErrorCode("INVALID_OPTION", "an option has a value of the wrong form"),
        ErrorCode("INVALID_BODY", "the body does not take `t` (and a row), is no function, or yields"),
        ErrorCode("AUTHORING_ERROR", "a definition or test body is misused in a way without a code of its own"),
        ErrorCode("INVALID_EVALS", "several of these at once"),
    ),
)

_TASK_FOLDERS = CodeTable(
    "Task folders",
    codes=(
        ErrorCode(
            "INVALID_TASK",
            "a `task.toml` can't be read, or has a value of the wrong form; its folder lacks the instruction, or "
            "the `test.sh` among its tests",
        ),
        ErrorCode(
            "TASK_NOT_SUPPORTED",
            "a setting asks for what would change the task's meaning and is not done here, by its name",
            "[what is kept](harbor.md#what-is-kept-of-tasktoml)",
        ),
    ),
)

_DATASETS = CodeTable(
    "Datasets",
    codes=(
        ErrorCode("INVALID_DATASET", "a constructor's option can't be, or the file is remote"),
        ErrorCode("DATASET_NOT_READABLE", "the file can't be opened"),
        ErrorCode("EMPTY_DATASET", "it has no rows, or its filter leaves none"),
        ErrorCode("INVALID_FILTER", "a filter raised on a row, or gave neither True nor False"),
        ErrorCode("INVALID_ROW", "a row is no object, does not fit its model, or has a cell that JSON can't hold"),
        ErrorCode("MISSING_ID", "a row lacks the key column"),
        ErrorCode(
            "INVALID_CSV", "cells and header differ in number, or a quote is never closed, with the line that opens it"
        ),
        ErrorCode("INVALID_JSON", "not JSON, or not the form that a dataset has"),
        ErrorCode(
            "INVALID_TABLE",
            "a Parquet or Arrow file, or a folder of them, can't be read: a column of a type that no row holds, a"
            " split that is not there",
        ),
        ErrorCode(
            "MISSING_EXTRA",
            "reading the file, or serving a pack's tools by MCP, needs a package that is not installed",
            "`pip install 'evalfleet[datasets]'`, or `'evalfleet[mcp]'`",
        ),
        ErrorCode("INVALID_YAML", "not YAML 1.2, or not the form that is wanted here"),
        ErrorCode(
            "INVALID_ENCODING",
            "bytes that are not in the encoding, with their offset",
            "name it by `encoding=`, or save as UTF-8",
        ),
        ErrorCode("DUPLICATE_KEY", "a key stands twice in one object"),
    ),
)

_SUITES = CodeTable(
    "Suites",
    codes=(
        ErrorCode(
            "EVALUATION_SUITE_INVALID",
            "a suite is not one: a key, a word, a form or an id that stands twice, each with its path and the "
            "nearest ids; values are never shown",
            "the definition at the paths that are named",
        ),
        ErrorCode(
            "EVALUATION_DATA_LIMIT",
            "a suite or an observation is more than 60 levels deep, or holds more than 500 000 values",
        ),
        ErrorCode("EVALUATION_DATA_CYCLE", "one contains itself"),
        ErrorCode("EVALUATION_ASSERTIONS_INVALID", "`evaluate_assertions` was given criteria that are none"),
        ErrorCode(
            "EVALUATION_OBSERVATION_INVALID",
            "an observation is no JSON object",
            "what the adapter returns as its observation",
        ),
        ErrorCode(
            "EVALUATION_SCENARIO_NOT_FOUND",
            "a selection names a scenario that the suite does not have",
            "the message names the nearest one",
        ),
        ErrorCode(
            "EVALUATION_VARIANT_NOT_FOUND",
            "a selection names a step without variants, or a variant that the step does not have",
            "the message names the nearest one",
        ),
        ErrorCode("EVALUATION_SELECTION_EMPTY", "`scenario_ids` or `variants` leave no scenario"),
        ErrorCode(
            "EVALUATION_CASE_LIMIT",
            "variants and repetitions multiply to more cases than allowed, with the factors",
            "select less, or raise the limit",
        ),
        ErrorCode(
            "DUPLICATE_EVALUATOR",
            "two evaluators of a project, or one of it and an installed one, have one name",
            "rename one",
        ),
        ErrorCode(
            "EVALUATOR_NOT_FOUND",
            "a criterion names an evaluator that nobody provides; before a run for what is selected, else as a warning",
            'declare it by `@evaluator("…")` in an `evaluators.py` beside the suite',
        ),
    ),
)

_EXPERIMENTS = CodeTable(
    "Experiments",
    codes=(
        ErrorCode("EXPERIMENT_NOT_FOUND", "there is no such file"),
        ErrorCode("EXPERIMENT_NOT_READABLE", "it can't be read"),
        ErrorCode("INVALID_EXPERIMENT", "one or more of the problems below"),
        ErrorCode(
            "INVALID_SNAPSHOT",
            "a recorded run's experiment no longer fits this version or its adapters",
            "use the version that wrote it",
        ),
        ErrorCode("UNKNOWN_KEY", "a key that does not exist here", "the message names the nearest one"),
        ErrorCode("MISSING_KEY", "a required key is missing"),
        ErrorCode("INVALID_VALUE", "a value of the wrong type or outside its range"),
        ErrorCode("NOT_SUPPORTED", "a key that this version does not act on", "leave it out"),
        ErrorCode(
            "INVALID_CALIBRATION",
            "`judge.calibration` names a file that is no calibration of a judge",
            "`orchestrate judge calibrate --output` writes one",
        ),
        ErrorCode("INVALID_LABEL", "a line of labelled examples is none, with its number"),
        ErrorCode(
            "UNKNOWN_ADAPTER", "no installed package provides the adapter", "install it, or take the nearest name"
        ),
        ErrorCode("BROKEN_ADAPTER", "its entry point can't be loaded"),
        ErrorCode("UNKNOWN_BACKEND", "no installed package provides the sandbox backend"),
        ErrorCode("UNKNOWN_ARM", "no arm has this name"),
        ErrorCode("INVALID_ARM", "the adapter refuses the arm's options"),
        ErrorCode(
            "INVALID_MATRIX",
            "an entry can't be varied, two arms would have one name, or there would be more than 10,000",
        ),
        ErrorCode(
            "PRICE_UNKNOWN",
            "nobody knows what a model costs, so a hard budget in dollars can't be kept",
            "add the model to `prices`, or say `budget.stop: soft`",
        ),
        ErrorCode("INVALID_OVERRIDE", "`--set` names what it may not change"),
        ErrorCode("INVALID_ACCEPT", "the acceptance rule is wrong"),
        ErrorCode("UNKNOWN_PREFIX", "a prefix matches no eval"),
        ErrorCode(
            "TOO_MANY_CASES",
            "more than 10,000,000 cases, with the factors of their number",
            "lower `repetitions`, set `evals.limit`, or plan fewer arms",
        ),
        ErrorCode("NO_CASES", "the selection is empty", "widen it, or say `--allow-empty`"),
        ErrorCode(
            "EVALUATION_OPTIONS_INVALID",
            "`evalfleet.run` was given an option that there is not, or a value that can't be; what an experiment says "
            "is checked with its place instead, as `INVALID_VALUE` and the codes above",
            "the message names the nearest option",
        ),
        ErrorCode(
            "EVALUATION_RESUME_REQUIRED",
            "`--retry` without a run to go on with",
            "`orchestrate resume RUN --retry …`, or `--resume-unfinished`",
        ),
        ErrorCode(
            "EVALUATION_RESUME_INCOMPATIBLE",
            "a run can't be resumed because what it runs has changed: one or more of `DEFINITION_CHANGED`",
            "undo the change, or submit anew with `--reuse`",
        ),
        ErrorCode("DEFINITION_CHANGED", "what has changed since the run was planned, each by its name"),
        ErrorCode(
            "STYLE_CHANGED",
            "`rescore` finds an eval read as a score that was read as a verdict when it ran, or the other way round",
            "submit a new run",
        ),
        ErrorCode("MIXED_STYLES", "pass-style and score-style evals in one experiment", "split it"),
        ErrorCode("INVALID_PLAN", "several of these at once"),
    ),
)

_SANDBOX_PLANS = CodeTable(
    "Sandbox plans",
    codes=(
        ErrorCode(
            "VARIABLE_NOT_ALLOWED",
            "a task folder takes a variable of the host under another name, and the experiment does not name it",
            "name it in `sandbox.env_from`, if the task may know it",
        ),
        ErrorCode("SANDBOX_FILES_CONFLICT", "arm and eval both bring starting files", "leave one"),
        ErrorCode("SANDBOX_FILES_MISSING", "the starting files are no directory"),
        ErrorCode("SANDBOX_BACKEND_CONFLICT", "arm and eval name different backends", "leave one"),
        ErrorCode("SANDBOX_BUILD_MISSING", "the folder that an image is to be built from has no Dockerfile"),
        ErrorCode("SANDBOX_TEMPLATE_CONFLICT", "arm and eval together name more than one image or build", "leave one"),
        ErrorCode(
            "SANDBOX_TEMPLATE_MISSING",
            "neither names the image, or the build of one, that the backend needs; or the backend, where there is no "
            "default that will do",
        ),
        ErrorCode("INVALID_CRITERIA", "declared criteria match no file, or lie outside of the project"),
        ErrorCode(
            "CRITERIA_VISIBLE",
            "the sandbox's starting files, or the folder that its image is built from, hold the eval or its criteria",
            "move them out, or upload them after the last send",
        ),
        ErrorCode("SANDBOX_UNEXPECTED", "the eval asks for a sandbox that this arm can't have"),
    ),
)

DEFINITIONS = Chapter(
    "In definitions",
    about="Found before anything runs, all of a batch together; exit code 2. Each has a file, and where it can "
    "a line, a column and a field.",
    tables=(_EVAL_FILES, _TASK_FOLDERS, _DATASETS, _SUITES, _EXPERIMENTS, _SANDBOX_PLANS),
)
