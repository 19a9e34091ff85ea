"""What any sandbox has to do with files: exact bytes, exact names, and no way out."""

from __future__ import annotations

import os

from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command
from evalfleet.testing.runner import pytest
from evalfleet.testing.sandbox_subject import Subject

NAMES = (
    "plain.txt",
    "with space",
    'it\'s "quoted"',
    "two\nlines",
    "-rf",
    "$HOME",
    "*",
    "back\\slash",
    "城市 é 🙂.txt",
    ".hidden",
    "a" * 255,
)


async def every_byte_comes_back(on: Subject) -> None:
    data = bytes(range(256)) + b"a\0b" + b"\r\n"
    await on.sandbox.write("bytes", data)
    assert await on.sandbox.read("bytes") == data
    assert (await on.run("cat", "bytes")).stdout == data


async def an_empty_file_is_a_file(on: Subject) -> None:
    await on.sandbox.write("empty", b"")
    assert await on.sandbox.read("empty") == b""


async def five_megabytes_come_back(on: Subject) -> None:
    data = bytes(range(250)) * 20_000
    await on.sandbox.write("large", data)
    assert await on.sandbox.read("large") == data
    assert (await on.shell("wc -c < large")).text.strip() == "5000000"


async def odd_names_name_the_same_file_inside(on: Subject) -> None:
    for name in NAMES:
        await on.sandbox.write(f"odd/{name}", name.encode())
        assert await on.sandbox.read(f"odd/{name}") == name.encode()
        assert (await on.run("cat", "--", f"odd/{name}")).stdout == name.encode()
    listed = await on.shell("ls -1A -b odd | wc -l")
    assert listed.text.strip() == str(len(NAMES))


async def writing_makes_missing_parents(on: Subject) -> None:
    await on.sandbox.write("a/b/c/d", b"deep")
    assert await on.sandbox.read("a/b/c/d") == b"deep"


async def writing_replaces_the_whole_content_and_keeps_the_mode(on: Subject) -> None:
    await on.sandbox.write("script", b"#!/bin/sh\necho a long first version\n")
    await on.run("chmod", "755", "script")
    await on.sandbox.write("script", b"#!/bin/sh\necho b\n")
    assert (await on.run("./script")).text == "b\n"


async def an_absolute_path_inside_is_taken(on: Subject) -> None:
    await on.sandbox.write(f"{on.sandbox.workdir}/here", b"x")
    assert await on.sandbox.read("here") == b"x"


async def a_missing_file_is_a_file_not_found_error(on: Subject) -> None:
    for path in ("missing", "no/such/folder/missing"):
        with pytest.raises(FileNotFoundError):
            await on.sandbox.read(path)


async def reading_a_directory_is_an_error(on: Subject) -> None:
    await on.run("mkdir", "folder")
    with pytest.raises(IsADirectoryError):
        await on.sandbox.read("folder")


async def reading_a_pipe_does_not_hang(on: Subject) -> None:
    await on.run("mkfifo", "pipe")
    with pytest.raises(OSError):
        await on.sandbox.read("pipe")
    with pytest.raises(OSError):
        await on.sandbox.write("pipe", b"x")


async def a_path_that_leads_out_is_refused(on: Subject) -> None:
    for path in ("../outside", "a/../../outside", "/etc/hostname", "/"):
        with pytest.raises(PermissionError):
            await on.sandbox.read(path)
        with pytest.raises(PermissionError):
            await on.sandbox.write(path, b"x")
    (on.folder / "in").write_bytes(b"x")
    with pytest.raises(PermissionError):
        await on.sandbox.upload(on.folder / "in", "../outside")
    with pytest.raises(PermissionError):
        await on.sandbox.download("../", on.folder / "out")


async def a_link_that_leads_out_is_refused(on: Subject) -> None:
    await on.shell('echo safe > "$HOME/target" && ln -s "$HOME/target" file && ln -s "$HOME" folder && ln -s / root')
    for path in ("file", "folder/target", "root/etc/hostname"):
        with pytest.raises(PermissionError):
            await on.sandbox.read(path)
        with pytest.raises(PermissionError):
            await on.sandbox.write(path, b"overwritten")
    with pytest.raises(PermissionError):
        await on.sandbox.write("folder/new", b"x")
    with pytest.raises(PermissionError):
        await on.sandbox.download("folder", on.folder / "out")
    assert (await on.shell('cat "$HOME/target"; ls "$HOME"')).text == "safe\ntarget\n"


async def a_link_that_stays_inside_is_followed(on: Subject) -> None:
    await on.shell("mkdir v1 && echo one > v1/file && ln -s v1 current")
    assert await on.sandbox.read("current/file") == b"one\n"
    await on.sandbox.write("current/file", b"two\n")
    assert await on.sandbox.read("v1/file") == b"two\n"


async def a_file_is_uploaded_with_its_mode(on: Subject) -> None:
    source = on.folder / "tool"
    source.write_bytes(b"#!/bin/sh\necho uploaded\n")
    source.chmod(0o755)
    await on.sandbox.upload(source, "bin/renamed")
    assert (await on.run("bin/renamed")).text == "uploaded\n"


async def a_directory_is_uploaded_whole(on: Subject) -> None:
    source = on.folder / "tests"
    for name in NAMES:
        (source / "deep").mkdir(parents=True, exist_ok=True)
        (source / "deep" / name).write_bytes(name.encode())
    (source / "empty").mkdir()
    (source / "link").symlink_to("deep/plain.txt")
    await on.sandbox.write("tests/kept", b"kept")
    await on.sandbox.upload(source, "tests")
    for name in NAMES:
        assert await on.sandbox.read(f"tests/deep/{name}") == name.encode()
    assert (await on.shell("cat tests/kept tests/link && test -d tests/empty")).text == "keptplain.txt"


async def an_upload_does_not_write_through_a_waiting_link(on: Subject) -> None:
    source = on.folder / "tests" / "sub"
    source.mkdir(parents=True)
    (source / "file").write_bytes(b"hidden")
    await on.shell('mkdir tests && ln -s "$HOME" tests/sub')
    await on.sandbox.upload(on.folder / "tests", "tests")
    assert await on.sandbox.read("tests/sub/file") == b"hidden"
    assert (await on.shell('ls -A "$HOME"')).text == ""


async def a_file_is_downloaded(on: Subject) -> None:
    await on.sandbox.write("out/result", b"\0result\xff")
    await on.sandbox.download("out/result", on.folder / "new" / "copy")
    assert (on.folder / "new" / "copy").read_bytes() == b"\0result\xff"


async def a_directory_is_downloaded_whole(on: Subject) -> None:
    for name in NAMES:
        await on.sandbox.write(f"out/deep/{name}", name.encode())
    await on.shell("mkdir out/empty && ln -s deep/plain.txt out/link && chmod +x out/deep/plain.txt")
    await on.sandbox.download("out", on.folder / "copy")
    assert {path.name: path.read_bytes() for path in (on.folder / "copy" / "deep").iterdir()} == {
        name: name.encode() for name in NAMES
    }
    assert (on.folder / "copy" / "link").read_bytes() == b"plain.txt"
    assert (on.folder / "copy" / "empty").is_dir()
    assert os.access(on.folder / "copy" / "deep" / "plain.txt", os.X_OK)


async def a_download_brings_no_link_that_leads_out(on: Subject) -> None:
    for number, target in enumerate(("/etc/hostname", "../../..", "$HOME")):
        await on.shell(f'mkdir -p out{number}/deep && ln -s "{target}" out{number}/deep/link')
        with pytest.raises(PermissionError):
            await on.sandbox.download(f"out{number}", on.folder / f"copy{number}")
        assert not os.path.lexists(on.folder / f"copy{number}" / "deep" / "link")


async def transfers_of_what_is_not_there_say_so(on: Subject) -> None:
    with pytest.raises(FileNotFoundError):
        await on.sandbox.upload(on.folder / "missing", "x")
    with pytest.raises(FileNotFoundError):
        await on.sandbox.download("missing", on.folder / "x")


async def the_files_of_the_spec_are_there_before_setup(on: Subject) -> None:
    (on.folder / "fixture" / "src").mkdir(parents=True)
    (on.folder / "fixture" / "src" / "main").write_bytes(b"original")
    spec = SandboxSpec(files=str(on.folder / "fixture"), setup=("cp src/main seen", "printf ' again' >> seen"))
    sandbox = await on.create("with-files", spec)
    assert await sandbox.read("seen") == b"original again"
    await sandbox.write("src/main", b"changed")
    assert (on.folder / "fixture" / "src" / "main").read_bytes() == b"original"
    assert (await sandbox.run(Command(argv=("ls",)))).text == "seen\nsrc\n"
