"""Control groups: where they are made, by what `/proc` says, and what is written to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.model.definition import Resources
from evalfleet_sandboxes.cgroups import Cgroup, Hierarchies, hierarchies

LIMITS = Resources(cpus=1.5, memory=1 << 30, pids=100, disk=5)


def machine(tmp_path: Path, mountinfo: str, cgroup: str) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(mountinfo.format(root=tmp_path / "cgroup"))
    (proc / "cgroup").write_text(cgroup)
    return proc


VERSION_1 = """\
30 25 0:1 / {root}/memory rw - cgroup cgroup rw,memory
31 25 0:2 / {root}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 25 0:3 / {root}/unified rw - cgroup2 cgroup2 rw
33 25 0:4 / {root}/x rw - tmpfs tmpfs rw
"""


def test_version_1_makes_them_below_the_own_group(tmp_path: Path) -> None:
    proc = machine(tmp_path, VERSION_1, "3:memory:/service\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n")
    root = tmp_path / "cgroup"
    assert hierarchies(proc).places == {
        "memory": (1, (root / "memory" / "service",)),
        "cpu": (1, (root / "cpu,cpuacct",)),
        "pids": (2, ()),
    }


def test_version_2_makes_them_where_the_controller_is_handed_on(tmp_path: Path) -> None:
    proc = machine(tmp_path, "30 25 0:1 / {root} rw - cgroup2 cgroup2 rw\n", "0::/user/service\n")
    own = tmp_path / "cgroup" / "user" / "service"
    own.mkdir(parents=True)
    (own / "cgroup.subtree_control").write_text("")
    (own.parent / "cgroup.subtree_control").write_text("memory pids\n")
    assert hierarchies(proc).places == {"memory": (2, (own.parent,)), "pids": (2, (own.parent,)), "cpu": (2, ())}


def test_in_a_container_the_own_group_may_be_mounted_as_the_root(tmp_path: Path) -> None:
    mounted = "30 25 0:1 /docker/1 {root}/memory ro - cgroup cgroup rw,memory\n"
    proc = machine(tmp_path, mounted, "3:memory:/docker/1/inner\n")
    assert hierarchies(proc).places["memory"] == (1, (tmp_path / "cgroup" / "memory" / "inner",))
    (proc / "cgroup").write_text("3:memory:/elsewhere\n")
    assert hierarchies(proc).places["memory"] == (1, (tmp_path / "cgroup" / "memory",))


def test_without_proc_there_are_none(tmp_path: Path) -> None:
    assert hierarchies(tmp_path).make("name", LIMITS) == (Cgroup(), ("memory", "pids", "cpus"))


def test_what_can_not_be_made_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = Hierarchies({"memory": (2, (tmp_path / "file", tmp_path / "none")), "pids": (2, (tmp_path,))})
    group, refused = found.make("name", Resources(memory=1, pids=2))
    assert refused == ("memory",)
    assert group == Cgroup((str(tmp_path / "name"),), None)
    assert (tmp_path / "name" / "pids.max").read_text() == "6"


def test_limits_are_written_as_each_version_has_them(tmp_path: Path) -> None:
    for version, folder in ((1, tmp_path / "1"), (2, tmp_path / "2")):
        folder.mkdir()
        found = Hierarchies(dict.fromkeys(("memory", "pids", "cpu"), (version, (folder,))))
        group, refused = found.make("name", LIMITS)
        assert (group.folders, refused) == ((str(folder / "name"),), ())
    written = {path.name: path.read_text() for path in tmp_path.glob("*/name/*")}
    assert written == {
        "memory.limit_in_bytes": "1073741824",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
        "memory.max": "1073741824",
        "pids.max": "104",
        "cpu.max": "150000 100000",
    }


VERSION_1_ACCOUNT = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
VERSION_2_ACCOUNT = "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"


@pytest.mark.parametrize(("text", "kills"), [(VERSION_1_ACCOUNT, 3), (VERSION_2_ACCOUNT, 1), ("", None)])
def test_oom_kills_are_the_kernels_own_account(tmp_path: Path, text: str, kills: int | None) -> None:
    (tmp_path / "account").write_text(text)
    assert Cgroup((), tmp_path / "account").oom_kills() == kills
    assert Cgroup((), tmp_path / "gone").oom_kills() is None


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    Hierarchies({"pids": (2, (tmp_path,))}).remove("name")
