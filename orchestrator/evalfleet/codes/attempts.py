"""The codes of attempts that form no verdict. PURE."""

from __future__ import annotations

from evalfleet.codes import surroundings
from evalfleet.codes.tables import Chapter, CodeTable, ErrorCode

_THE_EVAL = CodeTable(
    "The eval (`authoring`)",
    codes=(
        ErrorCode("EVAL_RAISED", "the body raised"),
        ErrorCode("EVAL_NOT_LOADED", "a worker can't load the eval's file"),
        ErrorCode("NO_ASSERTIONS", "the body registered none and does not say `allow_no_assertions=True`"),
        ErrorCode("NEVER_AWAITED", "a line called something asynchronous without `await`"),
        ErrorCode("SEND_NOT_AWAITED", "the body ended with a send in flight"),
        ErrorCode("SEND_IN_FLIGHT", "a second send began before the first was answered"),
        ErrorCode("SEND_CANCELLED", "the body cancelled a send of this session, which can't go on"),
        ErrorCode("BODY_CANCELLED", "the body cancelled itself"),
        ErrorCode(
            "BUDGET_NOT_COVERED",
            "a hard budget can't cover a model call whose cost nothing limits",
            "set `max_tokens`, a price, or `budget.attempt_usd`, as the message says",
        ),
        ErrorCode("AFTER_THE_END", "something was used after the body ended"),
        ErrorCode("INVALID_ASSERTION", "an assertion got arguments that it can't use"),
        ErrorCode("ASSERTION_MISCONFIGURED", "a handle was configured twice, too late or against its kind"),
        ErrorCode("TOO_MANY_ASSERTIONS", "more assertions than one attempt may have"),
        ErrorCode(
            "PASS_MEASUREMENT_THRESHOLD_MISSING",
            "a measurement of a pass-style eval needs `.gate(min)`, `.at_least(x)` or `.optional()`",
        ),
        ErrorCode("PASS_SCORE_REFUSED", "`.score()` in a pass-style eval"),
        ErrorCode("GATE_MINIMUM_MISSING", "a gated measurement has no minimum"),
        ErrorCode("SCORE_OUT_OF_RANGE", "points below 0 or not finite"),
        ErrorCode("INVALID_SEND", "`send()` got something that can't be sent"),
        ErrorCode("INVALID_RESPONSE", "an answer fits no pending request"),
        ErrorCode("INVALID_GROUP", "a group has no title, or nests too deeply"),
        ErrorCode("SKIP_WITHOUT_REASON", "`t.skip()` needs a reason"),
        ErrorCode(
            "JUDGE_NOT_DECLARED",
            "`turn.judge` or `t.judge` in an eval that declares no judge; say `@define_eval(judge=True)`",
        ),
        ErrorCode(
            "INVALID_JUDGE_QUESTION",
            "a judge is asked without a text, about material that is no text, or with choices that can't be",
        ),
        ErrorCode("NO_FIXTURE", "`t.fixture` without a fixture folder"),
        ErrorCode(
            "CHANGES_NOT_TRACKED",
            "an assertion on changes in an eval whose `SandboxSpec` does not say `changes=TrackChanges()`",
        ),
        ErrorCode(
            "CHANGES_OVERLAP",
            "the body writes to the workdir, or runs a command, during a send: it would count as the agent's change",
        ),
        ErrorCode("NO_SANDBOX", "`t.sandbox` where neither the eval nor the arm names one"),
        ErrorCode("DIRECTIVE_INVALID", "a scripted agent's directive can't be obeyed"),
        ErrorCode(
            "REPLAY_DIVERGED",
            "the body sends on the record what was not recorded; the message names session and turn, with both texts",
        ),
    ),
)

_TASK_PACKS = CodeTable(
    "Task packs (`authoring`, `infrastructure`)",
    codes=(
        ErrorCode("INVALID_TOOLS", "`t.use_tools()` got what is no tool, or two of one name"),
        ErrorCode(
            "INVALID_ATTACHMENT",
            "`t.attach()` got a name that is no word, a value that is no JSON, or more than 8 MB in all",
        ),
        ErrorCode("NO_STATE", "`t.state` where no Task pack is open: `async with pack.open(t, row)`"),
        ErrorCode(
            "RESPONDER_NO_RULE",
            "the agent asked for what the responder's script has no rule for: the attempt is not graded, since "
            "its script is at fault",
        ),
        ErrorCode(
            "RESPONDER_MODEL_FAILED",
            "the model that plays the user did not answer, or its key is not set (kind `infrastructure`)",
        ),
        ErrorCode(
            "RESPONDER_MODEL_INVALID",
            "what the model that plays the user answered is nothing that its user could say or hand over (kind "
            "`infrastructure`)",
        ),
        ErrorCode(
            "RESPONDER_OUT_OF_SCOPE",
            "the model that plays the user saw no answer that would be its user's: the attempt is not graded",
        ),
        ErrorCode("NO_USER_MODEL", "the assignment has a `user`, and the pack no `user_model` to play it"),
        ErrorCode("READ_ONLY_TOOL", "a tool wrote to the case store; declare it `@pack_tool(mutating=True)`"),
        ErrorCode("SNAPSHOT_NOT_FOUND", "no snapshot has this id"),
        ErrorCode("RESET_WHILE_ACTIVE", "`reset()` after the first call on the store"),
        ErrorCode(
            "SNAPSHOT_DAMAGED",
            "what stands in the store after a reset has another digest than the snapshot (kind `infrastructure`)",
        ),
        ErrorCode("CASE_STORE_FAILED", "the case store or the trace can't be written or read (kind `infrastructure`)"),
    ),
)

_CALLS_IN_A_TRACE = CodeTable(
    "Calls in a trace",
    about="In a trace, a call that did not succeed has one of these.",
    codes=(
        ErrorCode("UNKNOWN_TOOL", "a call by a name that is no tool of the pack"),
        ErrorCode("INVALID_ARGUMENTS", "arguments that are no JSON object, or don't fit the tool"),
        ErrorCode("CALL_REJECTED", "the tool refused: there is no such record, or its own rule says no"),
        ErrorCode("TOOL_RAISED", "the tool broke; nothing that it wrote is kept"),
    ),
)

_CRITERIA_OF_SUITES = CodeTable(
    "Criteria of suites",
    about="An outcome with one of these could not be judged: its criterion is neither met nor missed, and "
    "neither is what contains it.",
    codes=(
        ErrorCode(
            "EVALUATOR_FAILED",
            "the evaluator raised, or gave no object with `passed`, or evidence that is no JSON object; the "
            "diagnostics have the exception",
            "the evaluator, its parameters, and the evidence that it needs",
        ),
        ErrorCode(
            "EVALUATOR_RESULT_INVALID",
            "its `passed` is no Boolean",
            "that the evaluator gives `passed` as True or False",
        ),
        ErrorCode(
            "JUDGE_UNAVAILABLE",
            "there is no judge, or it gave no score; the reason says why",
            "the judge's model and key, in the judge calls of the case",
        ),
        ErrorCode(
            "EVIDENCE_NOT_COVERED",
            "what the criterion looks at may be incomplete, and nothing seen decides it; the reason names the channel",
            "what the adapter declares of that channel, and whether it could report more",
        ),
        ErrorCode(
            "EVALUATION_CANCELLED",
            "the attempt was to end before the criterion was reached",
            "who cancelled the run, and what the agent still does",
        ),
        ErrorCode(
            "EVALUATION_EARLY_COMPLETION",
            "the agent ended the conversation before its last step",
            "why the agent ended before all steps had run",
        ),
        ErrorCode("EVALUATION_INCOMPLETE", "fewer turns than steps, and nothing else says why"),
    ),
)

_IN_REPORTS = CodeTable(
    "In reports",
    about="What a [report](report.md) calls what has several codes here, and what it knows beside them.",
    codes=(
        ErrorCode(
            "EVALUATION_TIMEOUT",
            "a deadline was reached, of the attempt or a turn",
            "`limits.turn_timeout` and `limits.attempt_timeout`, and what the agent still does",
        ),
        ErrorCode(
            "EVALUATION_TRANSPORT_FAILED",
            "a send ended without a turn, for a reason without a code of its own",
            "the attempt's diagnostics, and the agent's own log by `threadId` and `turnId`",
        ),
        ErrorCode(
            "EVALUATION_SESSION_FAILED",
            "a session could not be opened",
            "how the adapter opens a session; the attempt's diagnostics have the traceback",
        ),
        ErrorCode(
            "EVALUATION_CLEANUP_FAILED",
            "closing a session or a sandbox failed; what it hides stands in `outcomeBeforeCleanup`",
            "how the adapter and the sandbox close; the conversation itself may have been in order",
        ),
        ErrorCode(
            "EVALUATION_RESUME_INVALID",
            "a report file does not fit its schema or contradicts itself, with the place",
            "what wrote the file, and whether somebody changed it",
        ),
        ErrorCode(
            "TURN_RESUME_NOT_SUPPORTED",
            "a conversation that broke off can't go on: its adapter can't open a session again",
        ),
        ErrorCode("TURN_RESUME_UNSAFE", "it can't go on: a turn did not end well, or left nothing to go on from"),
        ErrorCode(
            "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION",
            "`--retry failed` or `errored` names a case that may have written outside: it is blocked, not repeated",
            "what it wrote; then `orchestrate resume RUN --retry blocked` runs it again",
        ),
    ),
)

_SELECTIONS = CodeTable(
    "Selections (`authoring`, `agent`)",
    about="Of steps that choose from what the agent offered, where the arm says `selections: true`.",
    codes=(
        ErrorCode(
            "EVALUATION_AGENT_INPUT_INVALID",
            "a step is not `{text, selection?}`, or its selection has not exactly one of `optionIndex`, "
            "`optionLabel` and `optionId`",
            "the step's input; without `selections: true` an agent gets any object as it is",
        ),
        ErrorCode(
            "EVALUATION_SELECTION_UNAVAILABLE",
            "the turn before left nothing to select from",
            "whether that turn offers options, in one `InputRequested`",
        ),
        ErrorCode(
            "EVALUATION_SELECTION_AMBIGUOUS",
            "the selection fits none of the options that were offered, or several",
            "the options of that turn: the index within their number, the label exact and unique",
        ),
    ),
)

_EVIDENCE = CodeTable(
    "Evidence (`adapter`, `grader`)",
    codes=(
        ErrorCode("ASSERTION_UNAVAILABLE", "a required assertion lacks evidence; its reason names the channel"),
        ErrorCode("ASSERTION_ERRORED", "a matcher or grader broke"),
        ErrorCode("NO_COVERAGE", "the adapter declares none"),
        ErrorCode("INVALID_TURN", "what the adapter or agent returned is no turn"),
        ErrorCode("EVIDENCE_NOT_JSON", "an event or datum has no JSON form"),
        ErrorCode("EVIDENCE_TOO_DEEP", "it nests too deeply"),
        ErrorCode("SESSION_OPEN_FAILED", "the adapter raised when it was to open a session; nothing was sent"),
        ErrorCode("ADAPTER_RAISED", "the adapter raised something that says nothing about the send"),
        ErrorCode("ADAPTER_CANCELLED", "the adapter cancelled its own send"),
        ErrorCode("SESSION_CLOSE_FAILED", "closing a session raised"),
        ErrorCode(
            "INPUT_UNSUPPORTED",
            "the turn has files or answers that the arm's request template does not send, or files that its "
            "adapter does not read",
        ),
        ErrorCode("SEND_FAILED", "a send ended without a turn, for a reason without a code of its own"),
    ),
)

ATTEMPTS = Chapter(
    "In attempts",
    about="An attempt that forms no verdict has a kind (whose fault, [semantics](semantics.md#whose-fault)) and"
    " a code.",
    tables=(
        _THE_EVAL,
        _TASK_PACKS,
        _CALLS_IN_A_TRACE,
        _CRITERIA_OF_SUITES,
        _IN_REPORTS,
        _SELECTIONS,
        _EVIDENCE,
        surroundings.AGENT_AND_PROVIDER,
        surroundings.TASK_FOLDERS,
        surroundings.SANDBOX,
        surroundings.THE_MACHINERY,
    ),
)
