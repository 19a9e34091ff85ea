"""What a bubblewrap sandbox sees of a machine, as arguments."""

from __future__ import annotations

from pathlib import Path

from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet_sandboxes.bubblewrap_view import View


def arguments(prefix: str, spec: SandboxSpec) -> str:
    above = tuple(sorted({str(parent) for parent in Path(prefix).parents} - {"/"}))
    return " ".join(View((), (prefix,), above).arguments(spec, Path("/state/etc"), Path("/state")))


def test_what_programs_leave_is_in_the_room() -> None:
    said = arguments("/opt/python", SandboxSpec())
    assert "--symlink /sandbox/tmp /tmp" in said and "--symlink /sandbox/tmp /var/tmp" in said
    assert "--tmpfs /tmp" not in said


def test_a_python_below_the_place_for_scratch_is_seen_beside_it() -> None:
    said = arguments("/tmp/project/.venv", SandboxSpec(resources=Resources(disk=1000)))
    order = ("--perms 1777 --size 1000 --tmpfs /tmp", "--dir /tmp/project", "--ro-bind /tmp/project/.venv")
    assert [said.index(part) for part in order] == sorted(said.index(part) for part in order)
    assert "--symlink /sandbox/tmp /tmp" not in said and "--symlink /sandbox/tmp /var/tmp" in said
