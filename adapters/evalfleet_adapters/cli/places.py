"""Setting a program up in a sandbox: where its gateway and its home are, and the files that it reads."""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.sandbox_ports import Command, Sandbox

_WRITE = 'umask 077; mkdir -p "$1" && cat > "$1/$2"'
#: Seconds that a program may take to say its version, or a file to be written.
PATIENCE = 120.0
#: The server of a Task pack's tools, where an arm gives it no other name.
_PACK, _PACK_URL = "pack", "${gateway}/mcp"


async def write_files(sandbox: Sandbox, folder: str, files: Mapping[str, str]) -> None:
    """Write the program's own files. Raises SendFailure AGENT_NOT_SET_UP."""
    for name, text in files.items():
        argv = ("sh", "-c", _WRITE, "evalfleet", folder, name)
        written = await sandbox.run(Command(argv=argv, stdin=text.encode(), timeout=PATIENCE))
        if not written.ok:
            error = written.stderr.decode("utf-8", "replace").strip()
            raise unusable("AGENT_NOT_SET_UP", f"{folder}/{name} can't be written: {error}")


def with_pack(servers: Mapping[str, str]) -> Mapping[str, str]:
    """The servers of an arm with that of the eval's Task pack, unless one of them is it."""
    return servers if _PACK_URL in servers.values() else {**servers, _PACK: _PACK_URL}


def within(gateway: str, servers: Mapping[str, str]) -> dict[str, str]:
    """The servers as the place reaches them."""
    return {name: url.replace("${gateway}", gateway) for name, url in servers.items()}


def without_gateway() -> SendFailure:
    """The failure of an agent that is in a place without one."""
    return unusable(
        "AGENT_WITHOUT_GATEWAY",
        "the agent can't reach its model: this sandbox has no gateway; use the backend bubblewrap, container "
        "or kubernetes",
    )


def unusable(code: str, message: str) -> SendFailure:
    """The failure of a program that can't be used here as it is asked to."""
    return SendFailure(message, kind=FailureKind.ADAPTER, code=code, acceptance=Acceptance.REJECTED)
