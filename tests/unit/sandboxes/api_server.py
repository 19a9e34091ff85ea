"""An API server that answers what a test tells it to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from evalfleet_sandboxes.kubernetes_access import Access, find_source
from evalfleet_sandboxes.kubernetes_api import Cluster

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def cluster_of(answer: Answer, folder: Path, *, token: str = "good") -> AsyncGenerator[Cluster]:
    """A cluster whose server gives these answers, asked again almost at once."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    kubeconfig = write_kubeconfig(folder, f"http://127.0.0.1:{runner.addresses[0][1]}", token)
    access = Access(find_source({"KUBECONFIG": str(kubeconfig)}))
    await access.open()
    try:
        yield Cluster(access, "space", backoff=(0.01, 0.01, 0.01))
    finally:
        await access.close()
        await runner.cleanup()


def write_kubeconfig(folder: Path, server: str, token: str) -> Path:
    file = folder / "kubeconfig"
    file.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: from-context}}}}]
current-context: x
""",
        encoding="utf-8",
    )
    return file


def refusal(status: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return web.json_response(body, status=status, headers=headers)
