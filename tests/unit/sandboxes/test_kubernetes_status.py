"""How a Pod stands, by what its cluster says of it."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet_sandboxes.kubernetes_status import Pod, Stage, standing


def seen(status: dict[str, Any], *, node: str = "node", deleted: bool = False) -> Pod:
    metadata = {"name": "pod", **({"deletionTimestamp": "2030-01-01T00:00:00Z"} if deleted else {})}
    return Pod.model_validate({"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status})


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "proxy"}, {"name": "sandbox", "state": state}]}


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"phase": "Pending", **container(waiting={"reason": reason, "message": message})}


@pytest.mark.parametrize(
    ("status", "stage", "why"),
    [
        ({}, Stage.STARTING, "Pending"),
        (waits("ContainerCreating"), Stage.STARTING, "ContainerCreating"),
        (waits("ErrImagePull", "a first failure"), Stage.STARTING, "ErrImagePull"),
        ({"phase": "Running", **container(running={"startedAt": "2030-01-01T00:00:00Z"})}, Stage.RUNNING, ""),
    ],
)
def test_what_may_still_run(status: dict[str, Any], stage: Stage, why: str) -> None:
    now = standing(seen(status))
    assert (now.stage, now.why, now.code) == (stage, why, "")


def test_without_a_node_the_scheduler_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    now = standing(seen({"phase": "Pending", "conditions": [condition]}, node=""))
    assert (now.stage, now.why) == (Stage.WAITING, "Unschedulable: 0/3 nodes fit")


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [
        (waits("ImagePullBackOff", "Back-off pulling"), "SANDBOX_IMAGE_MISSING", "Back-off pulling"),
        (waits("ErrImageNeverPull"), "SANDBOX_IMAGE_MISSING", "ErrImageNeverPull"),
        (waits("InvalidImageName"), "SANDBOX_IMAGE_MISSING", "InvalidImageName"),
        (waits("CreateContainerConfigError", "runAsNonRoot"), "SANDBOX_FAILED", "runAsNonRoot"),
        (container(terminated={"exitCode": 137, "reason": "OOMKilled"}), "SANDBOX_OOM", "memory"),
        (container(terminated={"exitCode": 3, "reason": "Error"}), "SANDBOX_LOST", "code 3"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "SANDBOX_LOST", "evicted it"),
        ({"phase": "Failed", "reason": "Preempting"}, "SANDBOX_LOST", "priority"),
        ({"phase": "Failed", "reason": "NodeLost"}, "SANDBOX_LOST", "node is gone"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "SANDBOX_LOST", "activeDeadlineSeconds"),
        ({"phase": "Failed"}, "SANDBOX_LOST", "Failed"),
    ],
)
def test_what_will_not_run_any_more(status: dict[str, Any], code: str, word: str) -> None:
    now = standing(seen(status))
    assert (now.stage, now.code) == (Stage.OVER, code)
    assert word in now.why
    assert "pod" in str(now.failure("pod"))


def test_an_evicted_pod_whose_process_was_killed_was_evicted() -> None:
    status = {"phase": "Failed", "reason": "Evicted", **container(terminated={"exitCode": 137, "reason": "Error"})}
    assert "evicted" in standing(seen(status)).why


def test_a_disruption_is_told_by_its_condition() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    now = standing(seen({"phase": "Running", "conditions": [condition], **container(running={})}))
    assert (now.stage, now.code) == (Stage.OVER, "SANDBOX_LOST")
    assert "PreemptionByScheduler" in now.why


def test_a_pod_that_is_being_deleted_is_over() -> None:
    now = standing(seen({"phase": "Running", **container(running={})}, deleted=True))
    assert (now.stage, now.code) == (Stage.OVER, "SANDBOX_LOST")


def test_an_init_container_that_failed_is_named() -> None:
    init = {"initContainerStatuses": [{"name": "close", "state": {"terminated": {"exitCode": 2}}}]}
    now = standing(seen({"phase": "Pending", **init}))
    assert (now.stage, now.code) == (Stage.OVER, "SANDBOX_FAILED")
    assert "'close'" in now.why


@pytest.mark.parametrize(
    ("beside", "stage", "word"),
    [
        ({"running": {}}, Stage.RUNNING, ""),
        ({"waiting": {"reason": "ContainerCreating"}}, Stage.STARTING, ""),
        ({"terminated": {"reason": "OOMKilled", "exitCode": 137}}, Stage.RUNNING, ""),
        ({"terminated": {"reason": "ContainerCannotRun", "message": "no python3"}}, Stage.OVER, "no python3"),
        ({"terminated": {"reason": "StartError", "message": "no python3"}}, Stage.OVER, "image needs python3"),
        ({"waiting": {"reason": "ErrImageNeverPull"}}, Stage.OVER, "ErrImageNeverPull"),
        ({"waiting": {"reason": "RunContainerError"}}, Stage.OVER, "EVALFLEET_RELAY_IMAGE"),
    ],
)
def test_a_relay_that_can_not_be_started_is_told_apart(beside: dict[str, Any], stage: Stage, word: str) -> None:
    own: dict[str, Any] = {"name": "sandbox", "state": {"running": {}}}
    statuses = [own, {"name": "evalfleet-relay", "state": beside}]
    pod = Pod.model_validate({"spec": {"nodeName": "node"}, "status": {"containerStatuses": statuses}})
    now = standing(pod)
    assert (now.stage, word in now.why) == (stage, True)
    assert now.code == ("SANDBOX_UNREACHABLE" if stage is Stage.OVER else "")
