"""How a Pod stands, read from what its cluster says of it. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet_sandboxes.kubernetes_pods import CONTAINER, RELAY
from evalfleet_sandboxes.relay_program import REMEDY

#: What no later try of the same image changes.
IMAGE_FINAL = ("InvalidImageName", "ErrImageNeverPull")
#: Why a container waits for its image in vain; a first pull that failed (ErrImagePull) is tried again by the kubelet.
_IMAGE_REASONS = frozenset({*IMAGE_FINAL, "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"})
_CONFIGURATION_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
#: What the runtimes say of a container whose first process could not be started.
_START_REASONS = frozenset({"ContainerCannotRun", "StartError"})
#: What the kubelet, the scheduler and the controllers of nodes say of a Pod that they took away.
_TAKEN = {
    "Evicted": "its node ran out of something and evicted it",
    "Preempting": "a Pod of higher priority took its place",
    "Preempted": "a Pod of higher priority took its place",
    "PreemptionByScheduler": "a Pod of higher priority took its place",
    "EvictionByEvictionAPI": "somebody had it evicted",
    "DeletionByTaintManager": "its node bears it no longer",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ran out of something, or was shut down",
    "NodeLost": "its node is gone",
    "NodeShutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Shutdown": "its node was shut down",
    "UnexpectedAdmissionError": "its node could not take it",
    "OutOfcpu": "its node had no CPU left for it",
    "OutOfmemory": "its node had no memory left for it",
    "OutOfpods": "its node had no place left for it",
    "DeadlineExceeded": "it lived longer than its template's activeDeadlineSeconds",
}


class _Seen(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Metadata(_Seen):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    resourceVersion: str = ""


class Waiting(_Seen):
    reason: str = ""
    message: str = ""


class Ended(_Seen):
    exitCode: int = -1
    reason: str = ""
    message: str = ""


class ContainerState(_Seen):
    waiting: Waiting | None = None
    running: dict[str, object] | None = None
    terminated: Ended | None = None


class ContainerStatus(_Seen):
    name: str = ""
    state: ContainerState = ContainerState()


class Condition(_Seen):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(_Seen):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()
    initContainerStatuses: tuple[ContainerStatus, ...] = ()


class PodSpec(_Seen):
    nodeName: str = ""


class Pod(_Seen):
    """What we read of a Pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Stage(IntEnum):
    """Each comes after those before it: waiting for a node, for its containers, and so on."""

    WAITING = 1
    STARTING = 2
    RUNNING = 3
    OVER = 4


class Standing(NamedTuple):
    """Where a Pod is and why it is not running; `code` is the failure's that this is, empty while it is none."""

    stage: Stage
    why: str = ""
    code: str = ""

    def failure(self, name: str) -> AttemptFailure:
        return AttemptFailure(FailureKind.SANDBOX, self.code or "SANDBOX_LOST", f"pod {name}: {self.why}")


GONE = Standing(Stage.OVER, "it is gone from its cluster", "SANDBOX_LOST")


def standing(pod: Pod) -> Standing:
    """How the Pod stands. A Pod that is being deleted, or whose node has left it, is over."""
    status = pod.status
    own = next((found.state for found in status.containerStatuses if found.name == CONTAINER), ContainerState())
    taken = status.reason or next((found.reason for found in status.conditions if found.type == "DisruptionTarget"), "")
    if own.terminated is not None and own.terminated.reason == "OOMKilled":
        return _over("SANDBOX_OOM", "its first process was killed for memory: raise resources.memory")
    if taken in _TAKEN:
        return _over("SANDBOX_LOST", f"{_TAKEN[taken]} ({taken}){_said(status.message)}")
    if own.terminated is not None:
        said = own.terminated
        return _over(
            "SANDBOX_LOST", f"its first process ended with code {said.exitCode} ({said.reason}){_said(said.message)}"
        )
    if pod.metadata.deletionTimestamp is not None:
        return _over("SANDBOX_LOST", "somebody deleted it")
    if status.phase in ("Failed", "Succeeded"):
        return _over("SANDBOX_LOST", f"it ended: {status.reason or status.phase}{_said(status.message)}")
    beside = next((found.state for found in status.containerStatuses if found.name == RELAY), None)
    if beside is not None and (why := _not_started(beside)):
        return _over("SANDBOX_UNREACHABLE", f"its relay can't be started, {why}: {REMEDY}")
    if own.running is not None and (beside is None or beside.running is not None or beside.terminated is not None):
        return Standing(Stage.RUNNING)
    return _starting(status, own, placed=bool(pod.spec.nodeName))


def _not_started(beside: ContainerState) -> str:
    """Why the container of relays will never run; empty when it does, may yet, or has."""
    wait, ended = beside.waiting, beside.terminated
    if wait is not None and wait.reason in _IMAGE_REASONS | _CONFIGURATION_REASONS:
        return f"{wait.reason}{_said(wait.message)}"
    if ended is not None and ended.reason in _START_REASONS:
        return f"{ended.reason}{_said(ended.message)}"
    return ""


def _starting(status: PodStatus, own: ContainerState, *, placed: bool) -> Standing:
    waiting = [found.state.waiting for found in (*status.initContainerStatuses, *status.containerStatuses)]
    for wait in (own.waiting, *waiting):
        if wait is not None and wait.reason in _IMAGE_REASONS:
            return _over("SANDBOX_IMAGE_MISSING", f"{wait.reason}{_said(wait.message)}")
        if wait is not None and wait.reason in _CONFIGURATION_REASONS:
            return _over("SANDBOX_FAILED", f"its container can't be made: {wait.reason}{_said(wait.message)}")
    for found in status.initContainerStatuses:
        if found.state.terminated is not None and found.state.terminated.exitCode != 0:
            return _over(
                "SANDBOX_FAILED", f"its init container {found.name!r} ended with {found.state.terminated.exitCode}"
            )
    for condition in status.conditions:
        if (condition.type, condition.status) == ("PodScheduled", "False"):
            return Standing(Stage.WAITING, f"{condition.reason}{_said(condition.message)}")
    if not placed:
        return Standing(Stage.WAITING, "no scheduler has looked at it yet")
    return Standing(Stage.STARTING, own.waiting.reason if own.waiting is not None else status.phase or "Pending")


def _over(code: str, why: str) -> Standing:
    return Standing(Stage.OVER, why, code)


def _said(message: str) -> str:
    return f": {' '.join(message.split())[:300]}" if message else ""
