"""Making Pods and removing them: within what a cluster bears, and never one too many."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet_sandboxes.kubernetes_api import Cluster, Refused, Unreachable
from evalfleet_sandboxes.kubernetes_pods import ENVIRONMENT, KEPT, OWNER, WORKDIR, Lease, Manifest, pod, selector
from evalfleet_sandboxes.kubernetes_starts import Starts
from evalfleet_sandboxes.kubernetes_status import IMAGE_FINAL, Pod, Stage, Standing
from evalfleet_sandboxes.kubernetes_watch import PodWatch

#: Of the whole process, so that two providers in it never mean the same Pod.
_NUMBERS = itertools.count(1)
#: How many Pods of a process are being deleted at once.
_DELETES = 16
#: Failures to start of which there are fewer when fewer start at once.
_PUSHES = frozenset({"SANDBOX_QUOTA", "SANDBOX_UNSCHEDULABLE", "SANDBOX_FAILED", "SANDBOX_LOST"})
#: How many characters of an environment are told; a cluster keeps 256 KiB of annotations of a Pod.
_MOST_TOLD = 1 << 16
_QUOTA_REMEDY = "wait for others to end, or raise the namespace's ResourceQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that a Pod may wait for a node, and then for its image and its containers."""

    place: float = 120.0
    start: float = 600.0


class PodMaker:
    """Makes the Pods of one process in one namespace. `labels` has `run`, `host` and `pid` of it."""

    def __init__(
        self,
        cluster: Cluster,
        watch: PodWatch,
        template: Manifest,
        labels: Mapping[str, str],
        *,
        runtime: str | None,
        patience: Patience,
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._template = template
        self._labels = labels
        self._runtime = runtime
        self._patience = patience
        self._starts = Starts()
        self._deletes = asyncio.Semaphore(_DELETES)
        self._unremoved: set[str] = set()
        self._images: dict[str, AttemptFailure] = {}

    def lease(self, owner: str) -> Lease:
        """A lease that no other Pod has."""
        return Lease.of(self._labels, owner=owner, number=next(_NUMBERS))

    def check(self, spec: SandboxSpec, relay: str | None) -> None:
        """Raises AttemptFailure SANDBOX_UNSUPPORTED for what no Pod of ours has."""
        pod(self._template, self.lease("check"), spec, (), self._runtime, relay)

    async def make(self, lease: Lease, spec: SandboxSpec, command: tuple[str, ...], relay: str | None) -> None:
        """A Pod whose container runs, one of the image `relay` beside it.

        Raises AttemptFailure of kind sandbox; then there is none.
        """
        manifest = pod(self._template, lease, spec, command, self._runtime, relay)
        if (known := self._images.get(spec.image or "")) is not None:
            raise AttemptFailure(known.kind, known.code, str(known))
        async with self._starts.one() as push_back:
            await self._clear(lease)
            self._watch.expect(lease.name)
            try:
                await self._post(lease, manifest)
                await self._wait(lease.name, spec.image or "")
            except BaseException as error:
                if isinstance(error, AttemptFailure) and error.code in _PUSHES:
                    push_back()
                await asyncio.shield(self._give_up(lease))
                raise

    async def try_out(self, spec: SandboxSpec) -> None:
        """Whether the cluster would take such a Pod, without making it. Raises Refused or Unreachable."""
        manifest = pod(self._template, self.lease("check"), spec, ("true",), self._runtime)
        await self._cluster.call("POST", self._cluster.path("pods"), query={"dryRun": "All"}, body=manifest)

    async def remove(self, name: str, uid: str | None = None) -> None:
        """Delete a Pod at once; only the one with this uid, if given. Raises AttemptFailure SANDBOX_CLEANUP_FAILED."""
        body = {"preconditions": {"uid": uid}} if uid else None
        async with self._deletes:
            try:
                path = self._cluster.path("pods", name)
                await self._cluster.call("DELETE", path, query={"gracePeriodSeconds": "0"}, body=body)
            except Refused as error:
                if error.status not in (404, 409):  # it is gone, or another one by now
                    raise _failure("SANDBOX_CLEANUP_FAILED", f"pod {name} could not be deleted: {error}") from error
            except Unreachable as error:
                raise _failure("SANDBOX_CLEANUP_FAILED", f"pod {name} could not be deleted: {error}") from error
        self._watch.forget(name)

    async def keep(self, name: str, workdir: str, environment: str) -> None:
        """Let a Pod stay, with what who enters it has to know. Raises AttemptFailure."""
        told = {ENVIRONMENT: environment} if len(environment) < _MOST_TOLD else {}
        marked = {"labels": {KEPT: "true"}, "annotations": {WORKDIR: workdir, **told}}
        try:
            await self._cluster.call("PATCH", self._cluster.path("pods", name), body={"metadata": marked})
        except Refused as error:
            raise refusal(error, "patch pods", self._cluster.namespace) from error
        except Unreachable as error:
            raise _failure("SANDBOX_FAILED", f"the cluster can't be reached: {error}") from error
        self._watch.forget(name)

    async def _post(self, lease: Lease, manifest: Manifest) -> None:
        try:
            await self._cluster.call("POST", self._cluster.path("pods"), body=manifest)
        except Refused as error:
            if error.status == 409 and await self._ours(lease):
                return  # the answer to an earlier try was lost
            raise refusal(error, "create pods", self._cluster.namespace) from error
        except Unreachable as error:
            raise _failure("SANDBOX_FAILED", f"the cluster can't be reached: {error}") from error

    async def _ours(self, lease: Lease) -> bool:
        found = Pod.model_validate(await self._cluster.call("GET", self._cluster.path("pods", lease.name)))
        return lease.annotations.items() <= found.metadata.annotations.items()

    async def _wait(self, name: str, image: str) -> None:
        try:
            async with asyncio.timeout(self._patience.place):
                await self._watch.beyond(name, Stage.WAITING)
        except TimeoutError:
            why = f"no node took it within {self._patience.place:g} s: {self._watch.now(name).why}"
            raise _failure("SANDBOX_UNSCHEDULABLE", f"pod {name}: {why}") from None
        try:
            async with asyncio.timeout(self._patience.start):
                now = await self._watch.beyond(name, Stage.STARTING)
        except TimeoutError:
            why = f"it did not start within {self._patience.start:g} s: {self._watch.now(name).why}"
            raise _failure("SANDBOX_FAILED", f"pod {name}: {why}") from None
        if now.stage is Stage.OVER:
            raise self._not_started(name, image, now)

    def _not_started(self, name: str, image: str, now: Standing) -> AttemptFailure:
        if now.code != "SANDBOX_IMAGE_MISSING":
            return now.failure(name)
        failure = _failure(now.code, f"image {image} can't be used: {now.why}")  # in the same words for every attempt
        if now.why.startswith(IMAGE_FINAL):
            self._images[image] = failure
        return failure

    async def _clear(self, lease: Lease) -> None:
        """Remove what an earlier try for this owner may have left."""
        if lease.owner in self._unremoved:
            query = {"labelSelector": selector({OWNER: lease.labels[OWNER], **lease.maker})}
            found = await self._cluster.call("GET", self._cluster.path("pods"), query=query)
            for item in found["items"]:
                await self.remove(Pod.model_validate(item).metadata.name)
            self._unremoved.discard(lease.owner)

    async def _give_up(self, lease: Lease) -> None:
        """Remove the Pod, or remember that there may be one: how its making failed says more."""
        try:
            await self.remove(lease.name)
        except AttemptFailure:
            self._unremoved.add(lease.owner)
            self._watch.forget(lease.name)


def refusal(error: Refused, right: str, namespace: str) -> AttemptFailure:
    """What a refused request means for an attempt."""
    if error.status == 403 and "exceeded quota" in error.message:  # the API has no other word for it
        return _failure("SANDBOX_QUOTA", f"{error.message}: {_QUOTA_REMEDY}")
    if error.status in (401, 403):
        message = f"the cluster refuses to {right} in the namespace {namespace}: {error.message}"
        return _failure("SANDBOX_FORBIDDEN", message)
    return _failure("SANDBOX_FAILED", f"the cluster refuses to {right}: {error.status} {error.message}")


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
