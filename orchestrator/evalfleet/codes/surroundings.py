"""The codes of what is around an attempt: its agent's provider, its sandbox, its worker, its verifier. PURE."""

from __future__ import annotations

from evalfleet.codes.tables import CodeTable, ErrorCode

AGENT_AND_PROVIDER = CodeTable(
    "Agent and provider (`agent`, `provider`, `deadline`)",
    codes=(
        ErrorCode("AGENT_RAISED", "the agent's code raised"),
        ErrorCode("TURN_TIMEOUT", "a send took longer than `limits.turn_timeout`"),
        ErrorCode(
            "ATTEMPT_TIMEOUT",
            "the attempt took longer than `limits.attempt_timeout`; one in a process of its own that does not end"
            " then is killed",
        ),
        ErrorCode("RATE_LIMITED", "the provider asks to wait"),
        ErrorCode("QUOTA_EXHAUSTED", "the account has no quota left; not repeated"),
        ErrorCode("AUTHENTICATION_FAILED", "the key is refused"),
        ErrorCode("PROVIDER_UNAVAILABLE", "the provider can't answer now"),
        ErrorCode("PROVIDER_ERROR", "it answered with an error of its own"),
        ErrorCode("PROVIDER_TIMEOUT", "it was silent for too long"),
        ErrorCode("REQUEST_REFUSED", "it refuses the request"),
        ErrorCode("REQUEST_INVALID", "the request can't be sent as it is"),
        ErrorCode("REQUEST_REDIRECTED", "it answers with a redirect, which is not followed"),
        ErrorCode("BAD_RESPONSE", "its answer is not what the protocol says"),
        ErrorCode("EMPTY_RESPONSE", "its answer is wholly empty"),
        ErrorCode("STREAM_CUT", "the stream ended before the answer did"),
        ErrorCode("CONNECTION_REFUSED", "no connection could be made"),
        ErrorCode("CONNECTION_BROKEN", "the connection broke"),
        ErrorCode(
            "AGENT_MISSING",
            "the program of a coding agent is not in the sandbox, or can't be started (kind `adapter`)",
            "install it in the image or by `sandbox.setup`, as the message says, or name it in `program`",
        ),
        ErrorCode(
            "AGENT_VERSION",
            "it is another version than the arm's (kind `adapter`)",
            "install the one that the message names, or set `version`",
        ),
        ErrorCode("AGENT_NOT_SET_UP", "its own files can't be written in the sandbox (kind `adapter`)"),
        ErrorCode(
            "AGENT_WITHOUT_GATEWAY",
            "the sandbox has no gateway, by which it would ask its model (kind `adapter`)",
            "use a backend that has one: `bubblewrap`, `container` or `kubernetes`",
        ),
        ErrorCode("AGENT_WITHOUT_MODEL", "it got no answer of its model (kind `provider`)"),
        ErrorCode("AGENT_EXITED", "it ended before its last word, or says that it broke"),
        ErrorCode("AGENT_OUTPUT_TOO_LARGE", "it wrote more than 64 MiB in one turn"),
        ErrorCode("SCRIPTED_FAILURE", "a scripted agent was told to fail"),
    ),
)

TASK_FOLDERS = CodeTable(
    "Task folders (`grader`, `agent`)",
    codes=(
        ErrorCode("REWARD_MISSING", "the tests wrote no reward"),
        ErrorCode("REWARD_INVALID", "what they wrote is no number from 0 to 1"),
        ErrorCode("VERIFIER_TIMEOUT", "the tests took longer than `verifier.timeout_sec`"),
        ErrorCode("TESTS_NOT_PLACED", "the tests could not be put into the sandbox"),
        ErrorCode(
            "STATE_INCOMPLETE", "less than a full reward came of a kept workdir, which may not be all that counts"
        ),
        ErrorCode("VERDICT_TAMPERED", "the agent wrote its own verdict, or changed the place of one (kind `agent`)"),
    ),
)

SANDBOX = CodeTable(
    "Sandbox (`sandbox`)",
    codes=(
        ErrorCode("SANDBOX_FAILED", "it could not be made or used, for a reason without a code of its own"),
        ErrorCode("SANDBOX_SETUP_FAILED", "a setup command failed"),
        ErrorCode("SANDBOX_FILES_REFUSED", "the starting files can't be copied"),
        ErrorCode("SANDBOX_UNSUPPORTED", "the backend can't do what the plan asks"),
        ErrorCode("SANDBOX_IMAGE_MISSING", "its image is not there and can't be fetched"),
        ErrorCode(
            "SANDBOX_IMAGE_UNFIT",
            "no sandbox can be made of its image: it ends at the start, lacks tools, or its user can't write to "
            "the workdir",
        ),
        ErrorCode("SANDBOX_BUILD_FAILED", "its image can't be built; every sandbox of that build says the same"),
        ErrorCode("SANDBOX_EXISTS", "the attempt has one already"),
        ErrorCode("SANDBOX_LOST", "it vanished while in use"),
        ErrorCode("SANDBOX_OOM", "the kernel ended all of it for its memory limit"),
        ErrorCode("SANDBOX_QUOTA", "the namespace's quota is used up"),
        ErrorCode("SANDBOX_FORBIDDEN", "the cluster gives no right to make it; the message names the right"),
        ErrorCode("SANDBOX_UNSCHEDULABLE", "no node of the cluster took it in time"),
        ErrorCode("SANDBOX_CLOSED", "it was used after it was closed"),
        ErrorCode("SANDBOX_UNREACHABLE", "its network can't be entered from the worker, nor a relay be had in it"),
        ErrorCode("SANDBOX_CLOSE_FAILED", "closing it failed"),
        ErrorCode("SANDBOX_UNCLEAN", "it could not be brought back to its beginning, so it is not used again"),
        ErrorCode("SANDBOX_CLEANUP_FAILED", "something of it could not be removed"),
        ErrorCode("WORKDIR_NOT_RESTORED", "a kept workdir could not be put into a new sandbox"),
        ErrorCode("CHANGES_NOT_FOLLOWED", "the workdir can't be followed, for example without git; nothing was sent"),
        ErrorCode("CHANGES_NOT_CAPTURED", "the body reads changes that could not be looked at; the message says why"),
    ),
)

THE_MACHINERY = CodeTable(
    "The machinery (`worker`, `infrastructure`)",
    codes=(
        ErrorCode(
            "WORKER_CRASHED",
            "the worker's process died while it ran the case; after two such crashes the case settles with it",
        ),
        ErrorCode("WORKER_STALLED", "the worker did not answer and was killed"),
        ErrorCode("WORKER_OOM", "the worker was killed for memory"),
        ErrorCode("WORKER_DRAINED", "the worker handed over and left"),
        ErrorCode("LEASE_EXPIRED", "nothing was heard of the worker for a lease's time"),
        ErrorCode("RUN_INTERRUPTED", "the attempt was under way when the run's coordinator went"),
        ErrorCode("RECORD_REJECTED", "the record store refuses the attempt's record"),
        ErrorCode("ARTIFACT_STORE_AWAY", "evidence could not be stored"),
        ErrorCode(
            "SANDBOX_NOT_ANNOUNCED",
            "the record store did not take the row of a sandbox that would outlive its worker, so none was made",
        ),
        ErrorCode("ISOLATION_FAILED", "the attempt's own process could not be started or heard"),
        ErrorCode("EXECUTION_FAILED", "our own code broke"),
        ErrorCode("STAGE_CANCELLED", "a stage was cancelled from within"),
        ErrorCode(
            "JUDGE_PRECHECK_FAILED",
            "the eval's judge did not answer before the run began, so its agent was not called (kind `judge`); "
            "the message says what came instead",
        ),
        ErrorCode("GRADING_TIMEOUT", "a judge was still asked when `limits.grading_timeout` was over (kind `judge`)"),
        ErrorCode("EVALUATION_FAILED", "evaluating the assertions broke (kind `grader`)"),
        ErrorCode("RECORDING_FAILED", "an attempt could not be made durable before its judge was asked"),
        ErrorCode("RECORDING_UNREADABLE", "what an earlier attempt recorded could not be read to be judged"),
        ErrorCode("REPLAY_TIMEOUT", "the body did not end in time on the record (kind `grader`)"),
        ErrorCode(
            "NOT_RECORDED",
            "the body decides on the record by what a sandbox gave it, which is not recorded (kind `grader`)",
        ),
        ErrorCode(
            "EXTERNAL_WRITES_NOT_AUTHORIZED",
            "the eval writes outside, and the experiment does not say `writes: {allow_external: true}`: the case "
            "is blocked",
            "what the eval declares, then `writes: {allow_external: true}`",
        ),
        ErrorCode(
            "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION",
            "an attempt that may have written outside was lost: the case is blocked until a person has looked, "
            "then `orchestrate resume RUN --retry blocked`",
        ),
    ),
)
