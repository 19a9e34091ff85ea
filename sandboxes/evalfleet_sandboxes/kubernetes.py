"""The sandbox `kubernetes`: a Pod for each attempt, reached through the cluster's API server alone.

It needs a namespace, and the rights to make, watch and delete Pods in it and to run commands in them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from evalfleet.errors import ConfigurationError
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import FoundSandbox, Opening, SandboxPlace
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.kept_environment import read
from evalfleet_sandboxes.kubernetes_access import Access, find_source
from evalfleet_sandboxes.kubernetes_api import Cluster, Refused, Unreachable
from evalfleet_sandboxes.kubernetes_home import Homes
from evalfleet_sandboxes.kubernetes_making import Patience, PodMaker
from evalfleet_sandboxes.kubernetes_pods import (
    CONTAINER,
    ENVIRONMENT,
    HOST,
    KEPT,
    OWNER,
    PID,
    SANDBOX,
    START,
    WORKDIR,
    Lease,
    Manifest,
    check_template,
)
from evalfleet_sandboxes.kubernetes_rights import closed_network, missing_rights
from evalfleet_sandboxes.kubernetes_sandbox import KubernetesSandbox, WayOut
from evalfleet_sandboxes.kubernetes_status import Pod
from evalfleet_sandboxes.kubernetes_watch import PodWatch
from evalfleet_sandboxes.making import close_all, made
from evalfleet_sandboxes.process_start import start_of
from evalfleet_sandboxes.relay_program import RELAY_IMAGE

NAMESPACE = "EVALFLEET_KUBERNETES_NAMESPACE"
TEMPLATE = "EVALFLEET_KUBERNETES_TEMPLATE"
RUNTIME_CLASS = "EVALFLEET_KUBERNETES_RUNTIME_CLASS"
_SHIPPED = Path(__file__).with_name("kubernetes_pod.yaml")
#: What is asked for when the cluster is asked whether it would take a Pod at all; it is not pulled.
_ANY_IMAGE = "evalfleet.invalid/check:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """One process's way to its namespace, and what it needs to make sandboxes there."""

    access: Access
    cluster: Cluster
    watch: PodWatch
    maker: PodMaker
    homes: Homes


class KubernetesProvider:
    """Makes a Pod for each sandbox. The connection is made when it is first needed."""

    name = "kubernetes"
    isolates = True
    outlives = True

    def __init__(self, place: SandboxPlace, patience: Patience | None = None) -> None:
        self._state = place.state
        self._environment = place.environment
        own = {"run": "", "host": socket.gethostname(), "pid": str(os.getpid()), **place.labels}
        self._labels = {**own, "start": start_of(int(own["pid"])) or ""}
        self._patience = patience or Patience()
        self._connected: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._no_policy: asyncio.Task[str | None] | None = None
        self._open: set[KubernetesSandbox] = set()

    async def check(self) -> None:
        to = await self._connection()
        namespace = to.cluster.namespace
        try:
            missing = await missing_rights(to.cluster)
            if missing:
                remedy = "bind a Role that has them (docs/sandboxes.md)"
                message = f"kubernetes: {to.cluster.server} gives no right to {', '.join(missing)}"
                raise ConfigurationError(f"{message} in the namespace {namespace}: {remedy}")
            await to.maker.try_out(SandboxSpec(image=_ANY_IMAGE))
        except Unreachable as error:
            message = f"kubernetes: the API server can't be reached: {error}"
            raise ConfigurationError(f"{message}: check the cluster, the network and {self._source()}") from error
        except Refused as error:
            remedy = f"check {NAMESPACE}, {TEMPLATE}, {RUNTIME_CLASS} and {self._source()}"
            message = f"kubernetes: {to.cluster.server} takes no Pods in the namespace {namespace}"
            raise ConfigurationError(f"{message}: {error.status} {error.message}: {remedy}") from error

    async def create(self, spec: SandboxSpec, owner: str) -> KubernetesSandbox:
        """A fresh sandbox; `spec.files` is absolute or starts at this process's directory.

        Raises AttemptFailure of kind sandbox: SANDBOX_UNSUPPORTED, SANDBOX_IMAGE_MISSING, SANDBOX_IMAGE_UNFIT,
        SANDBOX_QUOTA, SANDBOX_FORBIDDEN, SANDBOX_UNSCHEDULABLE, SANDBOX_OOM, SANDBOX_LOST, SANDBOX_FILES_MISSING,
        SANDBOX_FILES_REFUSED, SANDBOX_SETUP_FAILED, SANDBOX_FAILED.
        """
        return await self._created(spec, owner)

    async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> KubernetesSandbox:
        """See `Reachable.create_reachable`."""
        image = self._environment.get(RELAY_IMAGE) or spec.image or ""
        return await self._created(spec, owner, WayOut(opening=opening, image=image))

    async def _created(self, spec: SandboxSpec, owner: str, way: WayOut | None = None) -> KubernetesSandbox:
        to = await self._connection()
        to.maker.check(spec, None if way is None else way.image)
        no_policy = None if spec.network == "open" else await self._closed_network(to.cluster)
        sandbox = KubernetesSandbox(to.homes, spec, owner, no_policy, self._open.discard, way)
        self._open.add(sandbox)
        return await made(sandbox, sandbox.settle())

    async def close(self) -> None:
        try:
            await close_all(self._open)
        finally:
            await self._leave()

    async def found(self) -> list[FoundSandbox]:
        cluster = (await self._connection()).cluster
        query = {"labelSelector": f"{SANDBOX}=pod"}
        items = (await cluster.call("GET", cluster.path("pods"), query=query))["items"]
        return [self._found(Pod.model_validate(item)) for item in items]

    async def reap(self, sandbox: FoundSandbox) -> None:
        """Remove a Pod of ours that was kept or whose process is not known to live."""
        to = await self._connection()
        pod = await self._looked_up(to.cluster, sandbox.id)
        if pod is not None:
            now = self._found(pod)
            if now.kept or now.alive is not True:
                await to.maker.remove(sandbox.id, pod.metadata.uid)

    async def enter_argv(self, sandbox: FoundSandbox) -> tuple[str, ...]:
        """See `Enterable.enter_argv`."""
        cluster = (await self._connection()).cluster
        pod = await self._looked_up(cluster, sandbox.id)
        if pod is None:
            raise ConfigurationError(f"there is no pod {sandbox.id} any more in the namespace {cluster.namespace}")
        told = pod.metadata.annotations
        given = (f"{name}={text}" for name, text in read(told.get(ENVIRONMENT, "{}")).items())
        shell = ("env", *given, "sh", "-c", 'cd "$1"; exec sh', "sh", told.get(WORKDIR, "/"))
        where = ("--namespace", cluster.namespace, "--container", CONTAINER)
        return ("kubectl", "exec", "--stdin", "--tty", *where, sandbox.id, "--", *shell)

    async def _looked_up(self, cluster: Cluster, name: str) -> Pod | None:
        """A Pod of ours, None when there is no such one."""
        try:
            pod = Pod.model_validate(await cluster.call("GET", cluster.path("pods", name)))
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return pod if pod.metadata.labels.get(SANDBOX) == "pod" else None

    async def _connection(self) -> _Connection:
        async with self._connecting:
            if self._connected is None:
                self._connected = await self._connect()
            return self._connected

    async def _connect(self) -> _Connection:
        template = await in_thread(_template, self._environment)
        access = Access(find_source(self._environment))
        await access.open()
        await in_thread(self._state.mkdir, parents=True, exist_ok=True)
        cluster = Cluster(access, self._environment.get(NAMESPACE) or access.namespace)
        mine = Lease.of(self._labels, owner="", number=0)
        watch = PodWatch(cluster, {SANDBOX: "pod", **mine.maker})
        watch.begin()
        runtime = self._environment.get(RUNTIME_CLASS)
        maker = PodMaker(cluster, watch, template, self._labels, runtime=runtime, patience=self._patience)
        homes = Homes(cluster, watch, maker, self._state)
        return _Connection(access=access, cluster=cluster, watch=watch, maker=maker, homes=homes)

    async def _leave(self) -> None:
        if self._no_policy is not None:
            self._no_policy.cancel()
            await asyncio.wait((self._no_policy,))
        if self._connected is not None:
            await self._connected.watch.close()
            await self._connected.access.close()
            self._connected = None

    async def _closed_network(self, cluster: Cluster) -> str | None:
        """Why there is no policy that closes networks, asked once; None when there is."""
        if self._no_policy is None:
            self._no_policy = asyncio.create_task(closed_network(cluster), name="network policy")
        return await asyncio.shield(self._no_policy)

    def _found(self, pod: Pod) -> FoundSandbox:
        said, made = pod.metadata.annotations, pod.metadata.creationTimestamp
        host, number, start = said.get(HOST, ""), said.get(PID, ""), said.get(START)
        pid = int(number) if number.isdecimal() else 0
        return FoundSandbox(
            id=pod.metadata.name,
            owner=said.get(OWNER, ""),
            host=host,
            pid=pid,
            created_at=0.0 if made is None else made.timestamp(),
            alive=start_of(pid) == start if host == self._labels["host"] and start else None,
            kept=KEPT in pod.metadata.labels,
        )

    def _source(self) -> str:
        return find_source(self._environment).name


class KubernetesFactory:
    """Entry point `kubernetes` of `evalfleet.sandboxes`."""

    name = "kubernetes"

    def build(self, place: SandboxPlace) -> KubernetesProvider:
        return KubernetesProvider(place)


factory = KubernetesFactory()


def _template(environment: Mapping[str, str]) -> Manifest:
    """The template of all Pods. Raises ConfigurationError. Blocking."""
    own = environment.get(TEMPLATE)
    source = f"{TEMPLATE}={own}" if own else _SHIPPED.name
    try:
        text = (Path(own) if own else _SHIPPED).read_bytes()
        loaded: object = YAML(typ="safe", pure=True).load(text)  # pyright: ignore[reportUnknownMemberType]
        return check_template(loaded, source)
    except (OSError, YAMLError) as error:
        raise ConfigurationError(f"{source}: can't be read: {' '.join(str(error).split())}") from error
