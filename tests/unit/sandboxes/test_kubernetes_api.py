"""Requests to an API server that is busy, refuses, or is not there; and a watch that breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from evalfleet.errors import ConfigurationError
from evalfleet_sandboxes.kubernetes_access import Access, find_source
from evalfleet_sandboxes.kubernetes_api import Cluster, Refused, Unreachable
from evalfleet_sandboxes.kubernetes_making import refusal as refusal_of
from evalfleet_sandboxes.kubernetes_status import Stage
from evalfleet_sandboxes.kubernetes_watch import PodWatch
from tests.unit.sandboxes.api_server import Answer, cluster_of, refusal, write_kubeconfig


def in_turn(*answers: Callable[[], web.Response]) -> tuple[Answer, list[str]]:
    """Give these answers one after the other, the last for ever; and who asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("authorization", ""))
        return answers[min(len(asked), len(answers)) - 1]()

    return answer, asked


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_asked_again(status: int, tmp_path: Path) -> None:
    answer, asked = in_turn(
        *[lambda: refusal(status, "Busy", "later")] * 2, lambda: web.json_response({"kind": "PodList"})
    )
    async with cluster_of(answer, tmp_path) as cluster:
        assert await cluster.call("GET", cluster.path("pods")) == {"kind": "PodList"}
    assert len(asked) == 3


async def test_a_server_that_stays_busy_has_the_last_word(tmp_path: Path) -> None:
    answer, asked = in_turn(lambda: refusal(503, "Busy", "later"))
    async with cluster_of(answer, tmp_path) as cluster:
        with pytest.raises(Refused, match="later") as caught:
            await cluster.call("GET", cluster.path("pods"))
    assert (caught.value.status, caught.value.reason, len(asked)) == (503, "Busy", 4)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_what_is_refused_for_good_is_asked_once(status: int, tmp_path: Path) -> None:
    answer, asked = in_turn(lambda: refusal(status, "No", "never"))
    async with cluster_of(answer, tmp_path) as cluster:
        with pytest.raises(Refused):
            await cluster.call("POST", cluster.path("pods"), body={})
    assert len(asked) == 1


async def test_credentials_that_ran_out_are_got_anew_once(tmp_path: Path) -> None:
    def unauthorized() -> web.Response:
        write_kubeconfig(tmp_path, server[0], "fresh")
        return refusal(401, "Unauthorized", "who?")

    server: list[str] = []
    answer, asked = in_turn(unauthorized, lambda: web.json_response({"kind": "PodList"}))
    async with cluster_of(answer, tmp_path, token="stale") as cluster:
        server.append(cluster.server)
        await cluster.call("GET", cluster.path("pods"))
    assert asked == ["Bearer stale", "Bearer fresh"]


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9", "good")
    access = Access(find_source({"KUBECONFIG": str(kubeconfig)}))
    await access.open()
    cluster = Cluster(access, access.namespace, backoff=(0.01,))
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        await cluster.call("GET", cluster.path("pods"))
    await access.close()
    assert cluster.namespace == "from-context"


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (403, 'pods "x" is forbidden: exceeded quota: compute, requested: pods=1', "SANDBOX_QUOTA"),
        (403, "pods is forbidden: User cannot create resource", "SANDBOX_FORBIDDEN"),
        (422, "spec is invalid", "SANDBOX_FAILED"),
    ],
)
def test_a_refusal_has_the_code_of_what_to_do(status: int, message: str, code: str) -> None:
    failure = refusal_of(Refused(status, "No", message), "create pods", "space")
    assert failure.code == code
    assert message in str(failure)


def test_without_any_way_to_a_cluster_the_remedy_is_said() -> None:
    with pytest.raises(ConfigurationError, match="set KUBECONFIG"):
        find_source({"HOME": "/nonexistent"})


def test_in_a_pod_its_service_account_is_used() -> None:
    assert find_source({"HOME": "/nonexistent", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}).files is None


RUNNING = {"phase": "Running", "containerStatuses": [{"name": "sandbox", "state": {"running": {}}}]}


def pod(name: str, version: str = "1") -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": version}
    return {"metadata": metadata, "spec": {"nodeName": "node"}, "status": RUNNING}


class WatchedServer:
    """Lists `pods`; a watch gets what is put into `events`, None ends it."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.lists = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": self.pods})
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


async def over(watch: PodWatch, name: str) -> str:
    async with asyncio.timeout(30):
        now = await watch.beyond(name, Stage.RUNNING)
    assert now.stage is Stage.OVER
    return now.why


async def watching(cluster: Cluster, *names: str) -> PodWatch:
    watch = PodWatch(cluster, {})
    for name in names:
        watch.expect(name)
    watch.begin()
    return watch


async def test_a_pod_is_followed_to_its_deletion(tmp_path: Path) -> None:
    server = WatchedServer()
    async with cluster_of(server.answer, tmp_path) as cluster:
        watch = await watching(cluster, "mine")
        await server.events.put({"type": "ADDED", "object": pod("mine")})
        async with asyncio.timeout(30):
            assert (await watch.beyond("mine", Stage.STARTING)).stage is Stage.RUNNING
        await server.events.put({"type": "DELETED", "object": pod("mine", "2")})
        assert "gone" in await over(watch, "mine")
        await server.events.put(None)
        await watch.close()


async def test_what_vanished_while_no_watch_was_on_is_gone_and_what_is_not_there_yet_is_not(tmp_path: Path) -> None:
    server = WatchedServer()
    server.pods = [pod("first"), pod("second")]
    async with cluster_of(server.answer, tmp_path) as cluster:
        watch = await watching(cluster, "first", "second", "to-come")
        async with asyncio.timeout(30):
            await watch.beyond("first", Stage.STARTING)
        server.pods = [pod("second")]
        expired = {"kind": "Status", "code": 410, "message": "too old"}
        await server.events.put({"type": "ERROR", "object": expired})
        await server.events.put(None)
        assert "gone" in await over(watch, "first")
        assert watch.now("second").stage is Stage.RUNNING
        assert watch.now("to-come").stage is Stage.WAITING
        assert server.lists >= 2
        await server.events.put(None)
        await watch.close()
