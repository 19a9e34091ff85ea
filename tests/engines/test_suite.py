"""The sandbox `container` passes the public suite with each engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evalfleet.sandbox_ports import SandboxProvider
from evalfleet.testing.sandbox_suite import sandbox_suite
from tests.engines.engines import IMAGE, provider_of


@asynccontextmanager
async def docker_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    async with provider_of("docker", state) as provider:
        yield provider


@asynccontextmanager
async def podman_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    async with provider_of("podman", state) as provider:
        yield provider


#: The checks that files go through a tar for, as long as an image has one.
OF_TARS = (
    "a_directory_is_uploaded_whole",
    "an_upload_does_not_write_through_a_waiting_link",
    "a_file_is_downloaded",
    "a_directory_is_downloaded_whole",
    "a_download_brings_no_link_that_leads_out",
    "a_link_that_leads_out_is_refused",
    "transfers_of_what_is_not_there_say_so",
    "the_files_of_the_spec_are_there_before_setup",
    "an_export_has_every_file_under_its_name",
    "an_export_keeps_links_wherever_they_lead",
    "an_export_keeps_modes",
    "an_export_leaves_pipes_out",
    "an_export_keeps_empty_folders_and_hidden_files",
    "an_export_of_nothing_is_an_empty_folder",
    "an_export_changes_nothing_inside",
    "twenty_megabytes_come_back_by_every_road",
    "deep_paths_come_back_by_every_road",
)

pytestmark = pytest.mark.engine
TestDocker = pytest.mark.usefixtures("docker")(sandbox_suite(docker_provider, image=IMAGE))
TestPodman = pytest.mark.usefixtures("podman")(sandbox_suite(podman_provider, image=IMAGE))


@pytest.mark.parametrize("check", OF_TARS)
def test_an_image_needs_no_tar(engine: str, tmp_path: Path, check: str) -> None:
    make = docker_provider if engine == "docker" else podman_provider
    getattr(sandbox_suite(make, image="evalfleet-test/no-tar:1")(), f"test_{check}")(tmp_path)
