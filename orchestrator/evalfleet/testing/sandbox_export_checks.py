"""What any sandbox has to do when its workdir is exported: all of it, as it is, and nothing from elsewhere."""

from __future__ import annotations

import os
import stat

from evalfleet.testing.sandbox_file_checks import NAMES
from evalfleet.testing.sandbox_subject import Subject

MEGABYTE = 1_000_000
_MODES = {"read-only": 0o400, "script": 0o755, "shared": 0o664, "folder/private": 0o600}


async def an_export_has_every_file_under_its_name(on: Subject) -> None:
    for name in NAMES:
        await on.sandbox.write(f"odd/{name}", name.encode())
    await on.sandbox.export(on.folder)
    assert {path.name: path.read_bytes() for path in (on.folder / "odd").iterdir()} == {
        name: name.encode() for name in NAMES
    }


async def an_export_keeps_links_wherever_they_lead(on: Subject) -> None:
    targets = {"up": "../../..", "away": "/etc/hostname", "nowhere": "missing", "self": "self", "near": "file"}
    await on.sandbox.write("file", b"near")
    for name, target in targets.items():
        await on.run("ln", "-s", target, name)
    await on.run("ln", "-s", "/", "root")
    await on.sandbox.export(on.folder)
    assert {name: os.readlink(on.folder / name) for name in targets} == targets
    assert os.readlink(on.folder / "root") == "/"
    assert not (on.folder / "file").is_symlink()


async def an_export_keeps_modes(on: Subject) -> None:
    for name, mode in _MODES.items():
        await on.sandbox.write(name, b"x")
        await on.run("chmod", f"{mode:o}", name)
    await on.run("chmod", "750", "folder")
    await on.sandbox.export(on.folder)
    assert {name: stat.S_IMODE((on.folder / name).stat().st_mode) for name in _MODES} == _MODES
    assert stat.S_IMODE((on.folder / "folder").stat().st_mode) == 0o750


async def an_export_leaves_pipes_out(on: Subject) -> None:
    await on.shell("mkdir -p deep && mkfifo pipe deep/pipe && echo x > deep/file")
    await on.sandbox.export(on.folder)
    assert sorted(str(path.relative_to(on.folder)) for path in on.folder.rglob("*")) == ["deep", "deep/file"]


async def an_export_keeps_empty_folders_and_hidden_files(on: Subject) -> None:
    await on.shell("mkdir -p a/b/empty .git/refs && touch .hidden .git/HEAD")
    await on.sandbox.export(on.folder)
    assert (on.folder / "a" / "b" / "empty").is_dir()
    assert {path.name for path in on.folder.iterdir()} == {"a", ".git", ".hidden"}
    assert (on.folder / ".git" / "refs").is_dir() and (on.folder / ".git" / "HEAD").is_file()


async def an_export_of_nothing_is_an_empty_folder(on: Subject) -> None:
    await on.sandbox.export(on.folder)
    assert list(on.folder.iterdir()) == []


async def an_export_changes_nothing_inside(on: Subject) -> None:
    look = "find . -exec ls -dln {} + && find . -type f -exec sha256sum {} +"
    await on.shell("mkdir -p src && echo 1 > src/a && chmod 400 src/a && ln -s src/a link && mkfifo pipe")
    before = await on.shell(look)
    await on.sandbox.export(on.folder)
    assert before.ok and (await on.shell(look)).text == before.text


async def twenty_megabytes_come_back_by_every_road(on: Subject) -> None:
    data = bytes(range(256)) * (20 * MEGABYTE // 256)
    await on.sandbox.write("large", data)
    assert await on.sandbox.read("large") == data
    await on.sandbox.download("large", on.folder / "copy")
    assert (on.folder / "copy").read_bytes() == data
    await on.sandbox.upload(on.folder / "copy", "again")
    await on.sandbox.export(on.folder / "whole")
    assert (on.folder / "whole" / "again").read_bytes() == data


async def deep_paths_come_back_by_every_road(on: Subject) -> None:
    path = "/".join(f"{number} 城市 é" for number in range(60)) + "/file\n🙂"
    await on.sandbox.write(path, b"deep")
    assert await on.sandbox.read(path) == b"deep"
    assert (await on.run("cat", path)).stdout == b"deep"
    await on.sandbox.download("0 城市 é", on.folder / "copy")
    assert (on.folder / "copy" / path.partition("/")[2]).read_bytes() == b"deep"
    await on.sandbox.upload(on.folder / "copy", "back")
    assert await on.sandbox.read(f"back/{path.partition('/')[2]}") == b"deep"
    await on.sandbox.export(on.folder / "whole")
    assert (on.folder / "whole" / path).read_bytes() == b"deep"
