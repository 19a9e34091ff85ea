"""What a bubblewrap sandbox sees of a machine: arguments of the template, and what is mounted for each sandbox."""

from __future__ import annotations

from pathlib import Path

from evalfleet.enclosure_ports import Mount
from evalfleet_sandboxes.bubblewrap_view import View


def view(prefix: str) -> View:
    above = tuple(sorted({str(parent) for parent in Path(prefix).parents} - {"/"}))
    return View((), (prefix,), above)


def arguments(prefix: str, state: str = "/state") -> str:
    return " ".join(view(prefix).arguments(Path("/etc-folder"), Path(state)))


def test_what_programs_leave_is_in_the_room() -> None:
    said = arguments("/opt/python")
    assert "--symlink /sandbox/tmp /tmp" in said and "--symlink /sandbox/tmp /var/tmp" in said
    assert "--tmpfs" not in said
    assert "/tmp" not in {mount.target for mount in view("/opt/python").mounts("me", None)}


def test_a_python_below_the_place_for_scratch_is_seen_beside_it() -> None:
    said = arguments("/tmp/project/.venv")
    order = ("--perms 1777 --tmpfs /tmp", "--dir /tmp/project", "--ro-bind /tmp/project/.venv")
    assert [said.index(part) for part in order] == sorted(said.index(part) for part in order)
    assert "--symlink /sandbox/tmp /tmp" not in said and "--symlink /sandbox/tmp /var/tmp" in said


def test_each_sandbox_has_a_place_for_scratch_of_its_own() -> None:
    own = Mount(target="/tmp", mode=0o1777, size=1000, below=("/tmp/project/.venv",))
    assert own in view("/tmp/project/.venv").mounts("me", 1000)


def test_nothing_that_sandboxes_share_can_be_written_to() -> None:
    assert "--tmpfs /opt/python/state --remount-ro /opt/python/state" in arguments("/opt/python", "/opt/python/state")


def test_a_room_on_disk_covers_the_rooms_of_the_others() -> None:
    rooms = [mount for mount in view("/opt/python").mounts("me", None) if mount.target.startswith("/sandbox")]
    assert rooms == [
        Mount(target="/sandbox", source="/sandbox/me/room"),
        Mount(target="/sandbox/work", source="/sandbox/work"),
    ]
