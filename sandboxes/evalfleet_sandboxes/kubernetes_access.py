"""How to reach a cluster and who we are there: a kubeconfig, or the service account of the Pod that we run in."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from evalfleet.errors import ConfigurationError
from evalfleet_sandboxes.blocking import in_thread

try:
    import aiohttp
    from kubernetes_asyncio.client.configuration import Configuration
    from kubernetes_asyncio.client.rest import RESTClientObject
    from kubernetes_asyncio.config.config_exception import ConfigException
    from kubernetes_asyncio.config.incluster_config import load_incluster_config
    from kubernetes_asyncio.config.kube_config import load_kube_config
except ImportError as error:
    raise ImportError(f"it needs pip install 'evalfleet[kubernetes]' ({error})") from error

_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_GOODBYE_SECONDS = 0.25
_REMEDY = "set KUBECONFIG to a file that names a cluster, or run in a Pod with a service account"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the way to a cluster is written: kubeconfig files, joined by colons, or None for the Pod we run in."""

    files: str | None
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.files or "the service account of this Pod"


def find_source(environment: Mapping[str, str]) -> Source:
    """Raises ConfigurationError when there is none."""
    files = environment.get("KUBECONFIG") or str(Path(environment.get("HOME", "/")) / ".kube" / "config")
    if any(Path(file).expanduser().is_file() for file in files.split(":") if file):
        return Source(files=files, environment=environment)
    if "KUBERNETES_SERVICE_HOST" in environment:
        return Source(files=None, environment=environment)
    raise ConfigurationError(f"kubernetes: there is no kubeconfig at {files}: {_REMEDY}")


class Access:
    """An open way to the cluster of a source. `session` is shared by all requests; close it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._configuration = Configuration()
        self._configuration.connection_pool_maxsize = 0  # each running command holds a connection
        self._renewing = asyncio.Lock()
        self._rest: RESTClientObject | None = None
        self.namespace = "default"

    async def open(self) -> None:
        """Raises ConfigurationError when the source is unusable."""
        await self.renew()
        self._rest = RESTClientObject(self._configuration)

    async def renew(self) -> None:
        """Get credentials anew: a token may have run out."""
        async with self._renewing:
            try:
                self.namespace = await in_thread(_load, self._source, self._configuration) or "default"
            except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
                said = " ".join(str(error).split())
                raise ConfigurationError(f"kubernetes: {self._source.name} can't be used: {said}: {_REMEDY}") from error

    @property
    def server(self) -> str:
        return str(self._configuration.host).rstrip("/")

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._rest is None:
            raise ConfigurationError("kubernetes: the way to the cluster is not open")
        return self._rest.pool_manager

    @property
    def proxy(self) -> str | None:
        return self._configuration.proxy

    @property
    def server_hostname(self) -> str | None:
        return self._configuration.tls_server_name

    async def headers(self) -> dict[str, str]:
        settings = cast(dict[str, dict[str, str]], await self._configuration.auth_settings())
        return {setting["key"]: setting["value"] for setting in settings.values()}

    async def close(self) -> None:
        if self._rest is not None:
            await self._rest.close()
            with contextlib.suppress(TimeoutError):  # TLS connections of aiohttp end a moment after its close
                await asyncio.wait_for(asyncio.Event().wait(), _GOODBYE_SECONDS)


def _load(source: Source, configuration: Configuration) -> str | None:
    """Fill in the configuration; the namespace that the source names, if any. Blocking."""
    if source.files is None:
        load_incluster_config(client_configuration=configuration, environ=dict(source.environment))
        return _ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip() if _ACCOUNT_NAMESPACE.exists() else None
    # a loop of its own, since a plugin that gets credentials is waited for
    loaded = asyncio.run(load_kube_config(config_file=source.files, client_configuration=configuration))
    chosen = cast(Mapping[str, Mapping[str, str]], loaded.current_context or {})
    return chosen.get("context", {}).get("namespace")
