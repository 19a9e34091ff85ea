"""What a sandbox asks of a cluster, as manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from evalfleet.errors import AttemptFailure, ConfigurationError
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet_sandboxes import kubernetes_pods
from evalfleet_sandboxes.kubernetes_pods import Lease, Manifest, check_template, closing_policy, notices, pod

LEASE = Lease(owner="run/case:1", run="run", host="host", pid="7", start="99", number=1)
COMMAND = ("sh", "-c", "wait")


@pytest.fixture
def template() -> Manifest:
    file = Path(kubernetes_pods.__file__).with_name("kubernetes_pod.yaml")
    return check_template(YAML(typ="safe", pure=True).load(file.read_bytes()), file.name)


def made(template: Manifest, spec: SandboxSpec, runtime: str | None = None) -> Manifest:
    return pod(template, LEASE, spec, COMMAND, runtime)


def test_the_shipped_template_gives_a_pod_no_more_than_it_needs(template: Manifest) -> None:
    spec = made(template, SandboxSpec(image="image:1"))["spec"]
    (container,) = spec["containers"]
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (
        "Never",
        False,
        False,
    )
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert (container["image"], container["command"], container["args"]) == ("image:1", [*COMMAND], [])
    assert "runtimeClassName" not in spec


def test_a_pod_says_whose_it_is(template: Manifest) -> None:
    metadata = made(template, SandboxSpec(image="image:1"))["metadata"]
    assert metadata["annotations"] == {
        "evalfleet.run": "run",
        "evalfleet.owner": "run/case:1",
        "evalfleet.host": "host",
        "evalfleet.pid": "7",
        "evalfleet.start": "99",
    }
    assert metadata["labels"].items() >= {"evalfleet.sandbox": "pod", "evalfleet.run": "run"}.items()
    assert metadata["name"] == LEASE.name


def test_no_two_leases_share_a_name() -> None:
    changed = [{"owner": "x"}, {"run": "x"}, {"host": "x"}, {"pid": "8"}, {"start": "8"}, {"number": 2}]
    fields = {"owner": "run/case:1", "run": "run", "host": "host", "pid": "7", "start": "99", "number": 1}
    assert len({Lease(**{**fields, **change}).name for change in [{}, *changed]}) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["a b", "x" * 64, "-a", "a/b", "城"])
def test_a_label_is_what_a_label_may_be(text: str) -> None:
    value = Lease(owner=text, run=text, host=text, pid="1", start="9", number=1).labels["evalfleet.run"]
    assert value != text
    assert len(value) <= 63 and value.isalnum()


def test_limits_are_requests_too(template: Manifest) -> None:
    limits = Resources(cpus=0.5, memory=1 << 20, disk=1 << 30, pids=9)
    made_spec = made(template, SandboxSpec(image="image:1", resources=limits))["spec"]
    resources = made_spec["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "500m", "memory": str(1 << 20), "ephemeral-storage": str(1 << 30)}
    assert resources["requests"] == resources["limits"]
    assert made_spec["volumes"][0]["emptyDir"]["sizeLimit"] == str(1 << 30)
    assert "emptyDir" in template["spec"]["volumes"][0] and not template["spec"]["volumes"][0]["emptyDir"]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("1234", {"runAsNonRoot": True, "runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 1234}),
        ("12:34", {"runAsNonRoot": True, "runAsUser": 12, "runAsGroup": 34, "fsGroup": 34}),
        ("0", {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}),
    ],
)
def test_the_user_of_the_spec_is_the_pods(template: Manifest, user: str, expected: dict[str, object]) -> None:
    context = made(template, SandboxSpec(image="image:1", user=user))["spec"]["securityContext"]
    assert context == {**expected, "seccompProfile": {"type": "RuntimeDefault"}}


def test_a_runtime_class_is_passed_on(template: Manifest) -> None:
    assert made(template, SandboxSpec(image="image:1"), "gvisor")["spec"]["runtimeClassName"] == "gvisor"


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (SandboxSpec(), "image"),
        (SandboxSpec(build="folder"), "folder"),
        (SandboxSpec(image="image:1", user="agent"), "agent"),
        (SandboxSpec(image="image:1", network=("host.example",)), "host.example"),
        (SandboxSpec(image="image:1", env_from=("KEY",)), "KEY"),
    ],
)
def test_what_would_change_what_runs_is_refused(template: Manifest, spec: SandboxSpec, word: str) -> None:
    with pytest.raises(AttemptFailure, match=word) as caught:
        made(template, spec)
    assert caught.value.code == "SANDBOX_UNSUPPORTED"


def test_a_relay_is_a_container_without_any_right_beside_the_sandboxs(template: Manifest) -> None:
    spec = SandboxSpec(image="image:1", user="0", network=("example.org",))
    beside = pod(template, LEASE, spec, COMMAND, None, "relay:1")
    own, relay = beside["spec"]["containers"]
    assert (own["image"], own["command"], relay["image"]) == ("image:1", [*COMMAND], "relay:1")
    assert relay["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "volumeMounts" not in relay and "env" not in relay
    assert relay["imagePullPolicy"] == own["imagePullPolicy"]
    assert beside["metadata"]["labels"]["evalfleet.network"] == "none"
    assert len(template["spec"]["containers"]) == 1


def test_the_policy_selects_the_pods_whose_network_is_closed(template: Manifest) -> None:
    chosen = closing_policy()["spec"]["podSelector"]["matchLabels"]
    closed = made(template, SandboxSpec(image="image:1"))["metadata"]["labels"]
    opened = made(template, SandboxSpec(image="image:1", network="open"))["metadata"]["labels"]
    assert chosen.items() <= closed.items()
    assert not chosen.items() <= opened.items()


@pytest.mark.parametrize(
    ("spec", "policy", "about"),
    [
        (SandboxSpec(network="open"), None, []),
        (SandboxSpec(), None, ["network: none holds only where"]),
        (SandboxSpec(), "forbidden", ["network: none is not enforced: forbidden"]),
        (SandboxSpec(network="open", resources=Resources(pids=5)), None, ["resources.pids: 5"]),
        (SandboxSpec(network="open", resources=Resources(disk=5)), None, ["resources.disk: 5"]),
        (SandboxSpec(network="open", user="0"), None, ["user: commands run as root"]),
        (SandboxSpec(network="open", resources=Resources(cpus=1, memory=1 << 20), user="5"), None, []),
    ],
)
def test_what_can_not_be_promised_is_said(spec: SandboxSpec, policy: str | None, about: list[str]) -> None:
    said = list(notices(spec, policy, routes=True))
    assert len(said) == len(about)
    assert all(notice.startswith(beginning) for notice, beginning in zip(said, about, strict=True))


@pytest.mark.parametrize("policy", [None, "forbidden"])
def test_a_network_without_routes_needs_no_notice(policy: str | None) -> None:
    assert list(notices(SandboxSpec(), policy, routes=False)) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kind": "Job"}, "kind"),
        ({"spec": {"restartPolicy": "Always"}}, "restartPolicy"),
        ({"spec": {"containers": []}}, "container 'sandbox'"),
        ({"spec": {"volumes": []}}, "volume 'evalfleet'"),
    ],
)
def test_a_template_that_makes_no_sandbox_is_refused(template: Manifest, change: Manifest, word: str) -> None:
    spec = {**template["spec"], **change.get("spec", {})}
    with pytest.raises(ConfigurationError, match=word):
        check_template({**template, **change, "spec": spec}, "mine.yaml")
