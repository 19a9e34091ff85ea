"""What a sandbox asks of a cluster: the manifests of its Pod and of the policy that closes its network. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ValidationError, model_validator

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet_sandboxes.inside import KEEPER, MARK
from evalfleet_sandboxes.making import unresolved_secrets
from evalfleet_sandboxes.relay_program import WAITING

Manifest = dict[str, Any]

CONTAINER = "sandbox"
VOLUME = "evalfleet"
#: On every Pod of ours, whoever made it; the network policy goes by `CLOSED`.
SANDBOX = "evalfleet.sandbox"
CLOSED = "evalfleet.network"
RUN, OWNER, HOST, PID = "evalfleet.run", "evalfleet.owner", "evalfleet.host", "evalfleet.pid"
#: When the process began, by its kernel's count; whether the Pod stays after its attempt; where its commands start,
#: and what they found in their environment but for secrets.
START, KEPT, WORKDIR, ENVIRONMENT = "evalfleet.start", "evalfleet.kept", "evalfleet.workdir", "evalfleet.environment"
POLICY = "evalfleet-closed"
#: The container beside a sandbox's that relays run in; it shares no more than the network.
RELAY = "evalfleet-relay"

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
#: Who owns nothing, and is in no sandbox.
_NOBODY = 65534
_USER = re.compile(r"(\d+)(?::(\d+))?")


class _Named(BaseModel):
    name: str


class _TemplateSpec(BaseModel):
    restartPolicy: Literal["Never"]
    containers: list[_Named]
    volumes: list[_Named]

    @model_validator(mode="after")
    def _has_ours(self) -> Self:
        for what, name, items in (("container", CONTAINER, self.containers), ("volume", VOLUME, self.volumes)):
            if name not in [item.name for item in items]:
                raise ValueError(f"there is no {what} {name!r}")
        return self


class _Template(BaseModel):
    kind: Literal["Pod"]
    spec: _TemplateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Whose Pod it is; a run and an owner may be empty. `number` tells the Pods of one process apart.

    `start` is when the process began, by its kernel's count: another process may get its id.
    """

    owner: str
    run: str
    host: str
    pid: str
    start: str
    number: int

    @classmethod
    def of(cls, labels: Mapping[str, str], *, owner: str, number: int) -> Lease:
        """A lease of the process with these labels: `run`, `host`, `pid` and `start`."""
        process = {name: labels[name] for name in ("run", "host", "pid", "start")}
        return cls(owner=owner, number=number, **process)

    @property
    def name(self) -> str:
        """A name that no other lease has, so that making it twice makes it once."""
        return f"evalfleet-{_digest(self.run, self.owner, self.host, self.pid, self.start, str(self.number))}"

    @property
    def labels(self) -> dict[str, str]:
        return {SANDBOX: "pod", OWNER: _digest(self.owner), **self.maker}

    @property
    def maker(self) -> dict[str, str]:
        """What all Pods of this process are labelled with."""
        return {RUN: _label(self.run), HOST: _label(self.host), PID: _label(self.pid)}

    @property
    def annotations(self) -> dict[str, str]:
        return {RUN: self.run, OWNER: self.owner, HOST: self.host, PID: self.pid, START: self.start}


def pod(
    template: Manifest,
    lease: Lease,
    spec: SandboxSpec,
    command: tuple[str, ...],
    runtime: str | None,
    relay: str | None = None,
) -> Manifest:
    """The Pod of a lease: the template, filled in; with a container of the image `relay` beside the sandbox's.

    Raises AttemptFailure SANDBOX_UNSUPPORTED.
    """
    if refused := list(_unsupported(spec, reachable=relay is not None)):
        message = f"a kubernetes sandbox has {'; '.join(refused)}"
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", message)
    made = deepcopy(template)
    metadata = made.setdefault("metadata", {})
    metadata["name"] = lease.name
    closed = {CLOSED: "open" if spec.network == "open" else "none"}
    metadata["labels"] = {**metadata.get("labels", {}), **lease.labels, **closed}
    metadata["annotations"] = {**metadata.get("annotations", {}), **lease.annotations}
    if runtime:
        made["spec"]["runtimeClassName"] = runtime
    container = _named(made["spec"]["containers"], CONTAINER)
    container.update(image=spec.image, command=list(command), args=[])
    container["env"] = [*container.get("env", []), {"name": MARK, "value": KEEPER}]  # so that no command's end is its
    if relay is not None:
        made["spec"]["containers"].append(_relay(relay, container.get("imagePullPolicy")))
    if spec.user is not None:
        made["spec"]["securityContext"] = {**made["spec"].get("securityContext", {}), **_user(spec.user)}
    if limits := _limits(spec.resources):
        container["resources"] = {"requests": limits, "limits": limits}
    if spec.resources.disk is not None:
        _named(made["spec"]["volumes"], VOLUME).setdefault("emptyDir", {})["sizeLimit"] = str(spec.resources.disk)
    return made


def check_template(template: object, source: str) -> Manifest:
    """The template, if a sandbox can be made of it. Raises ConfigurationError."""
    try:
        _Template.model_validate(template)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(str(part) for part in wrong["loc"])
        raise ConfigurationError(f"{source}: {place}: {wrong['msg']}: start from the template that ships") from error
    return cast(Manifest, template)


def closing_policy() -> Manifest:
    """A policy under which no Pod whose network is to be closed gets anything in or out."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY, "labels": {SANDBOX: "policy"}},
        "spec": {"podSelector": {"matchLabels": {CLOSED: "none"}}, "policyTypes": ["Ingress", "Egress"]},
    }


def notices(spec: SandboxSpec, no_policy: str | None, *, routes: bool) -> Iterator[str]:
    """What of the spec can't be promised. `no_policy` says why there is none, `routes` that a route leads out."""
    asked = spec.network if isinstance(spec.network, str) else ", ".join(spec.network)
    if asked != "open" and routes and no_policy is not None:
        yield f"network: {asked} is not enforced: {no_policy}"
    elif asked != "open" and routes:
        yield f"network: {asked} holds only where the cluster's network plugin enforces {POLICY}, which can't be told"
    if spec.resources.pids is not None:
        yield f"resources.pids: {spec.resources.pids} is not enforced: a node has its own limit for all its Pods"
    if spec.resources.disk is not None:
        yield f"resources.disk: {spec.resources.disk} is enforced by evicting the Pod some time after it wrote more"
    if spec.user is not None and _user(spec.user)["runAsUser"] == 0:
        yield "user: commands run as root of the Pod, with no capability"


def selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _label(text: str) -> str:
    """The text as the value of a label, which is short and plain: another text where it has to be."""
    return text if not text or _LABEL.fullmatch(text) else _digest(text)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def _unsupported(spec: SandboxSpec, *, reachable: bool) -> Iterator[str]:
    if spec.build is not None:
        yield f"no way to build an image (build: {spec.build}): push one, and set sandbox.image"
    elif spec.image is None:
        yield "no image of its own: set sandbox.image"
    if spec.user is not None and not _USER.fullmatch(spec.user):
        yield f"users by number only (user: {spec.user}): write 1000 or 1000:1000"
    if not isinstance(spec.network, str) and not reachable:
        yield f"no way to reach some hosts only (network: {', '.join(spec.network)}): say none or open"
    elif isinstance(spec.network, str) and spec.network not in ("none", "open"):
        yield f"no network {spec.network!r}: say none or open"
    yield from unresolved_secrets(spec)


def _relay(image: str, pull: str | None) -> Manifest:
    nobody = {"runAsNonRoot": True, "runAsUser": _NOBODY, "runAsGroup": _NOBODY, "readOnlyRootFilesystem": True}
    made = {
        "name": RELAY,
        "image": image,
        "command": [*WAITING],
        "securityContext": {**nobody, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
    }
    return made if pull is None else {**made, "imagePullPolicy": pull}


def _user(user: str) -> dict[str, Any]:
    match = _USER.fullmatch(user)
    number, group = (0, None) if match is None else match.groups()
    owner = int(number)
    group_number = owner if group is None else int(group)
    return {"runAsNonRoot": owner != 0, "runAsUser": owner, "runAsGroup": group_number, "fsGroup": group_number}


def _limits(resources: Resources) -> dict[str, str]:
    limits: dict[str, str] = {}
    if resources.cpus is not None:
        limits["cpu"] = f"{max(1, round(resources.cpus * 1000))}m"
    if resources.memory is not None:
        limits["memory"] = str(resources.memory)
    if resources.disk is not None:
        limits["ephemeral-storage"] = str(resources.disk)
    return limits


def _named(items: list[Manifest], name: str) -> Manifest:
    return next(item for item in items if item["name"] == name)
