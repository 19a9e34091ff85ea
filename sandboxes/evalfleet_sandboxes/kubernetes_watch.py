"""What a cluster says of this process's Pods: one watch for all of them, and never a question a Pod."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp

from evalfleet.errors import ConfigurationError
from evalfleet_sandboxes.blocking import pause
from evalfleet_sandboxes.kubernetes_api import Cluster, Json, Refused, Unreachable
from evalfleet_sandboxes.kubernetes_pods import selector
from evalfleet_sandboxes.kubernetes_status import GONE, Pod, Stage, Standing, standing

_BETWEEN_WATCHES = 0.5
#: The server no longer has what came after the version that was asked for.
_EXPIRED = 410
#: What a watch survives: a server that is away, or says what can't be read.
_PASSING = (Refused, Unreachable, ConfigurationError, aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError)
_UNREPORTED = Standing(Stage.WAITING, "the cluster has not reported it yet")


class PodWatch:
    """The Pods with these labels, as the cluster last reported them. `begin` it, and close it."""

    def __init__(self, cluster: Cluster, labels: dict[str, str]) -> None:
        self._cluster = cluster
        self._query = {"labelSelector": selector(labels)}
        self._standings: dict[str, Standing] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="watch of pods")

    def expect(self, name: str) -> None:
        """Follow a Pod that is about to be made."""
        self._standings[name] = _UNREPORTED
        self._news[name] = asyncio.Event()

    def forget(self, name: str) -> None:
        self._standings.pop(name, None)
        if (news := self._news.pop(name, None)) is not None:
            news.set()

    def now(self, name: str) -> Standing:
        """How a Pod stands, by the last report."""
        return self._standings.get(name, GONE)

    async def beyond(self, name: str, stage: Stage) -> Standing:
        """Wait until a Pod has left this stage and all before it."""
        while (now := self.now(name)).stage <= stage:
            news = self._news[name]
            news.clear()
            await news.wait()
        return now

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(*_PASSING):
                version = await self._list()
                while True:
                    version = await self._watch(version)
            await pause(_BETWEEN_WATCHES)  # and then all of them anew: what was missed in between is in the list

    async def _list(self) -> str:
        before = {name for name, now in self._standings.items() if now is not _UNREPORTED}
        found = await self._cluster.call("GET", self._cluster.path("pods"), query=self._query)
        listed = [Pod.model_validate(item) for item in found["items"]]
        for pod in listed:
            self._report(pod.metadata.name, standing(pod))
        for name in before - {pod.metadata.name for pod in listed}:
            self._report(name, GONE)
        return str(found["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        query = {**self._query, "resourceVersion": version}
        events = self._cluster.watch(self._cluster.path("pods"), query)
        async with contextlib.aclosing(events):
            async for event in events:
                version = self._take(event) or version
        return version

    def _take(self, event: Json) -> str:
        if event["type"] == "ERROR":
            raise Refused(int(event["object"].get("code", _EXPIRED)), "Expired", "the watch has to begin anew")
        pod = Pod.model_validate(event["object"])
        if event["type"] != "BOOKMARK":
            now = standing(pod)
            if event["type"] == "DELETED" and now.stage is not Stage.OVER:
                now = GONE
            self._report(pod.metadata.name, now)
        return pod.metadata.resourceVersion

    def _report(self, name: str, now: Standing) -> None:
        known = self._standings.get(name)
        if known is not None and known.stage is not Stage.OVER:  # how it ended is not changed by its removal
            self._standings[name] = now
            self._news[name].set()
