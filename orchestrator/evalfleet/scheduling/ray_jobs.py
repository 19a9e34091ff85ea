"""Jobs of a Ray cluster, over the HTTP address of its dashboard. Every method blocks."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ray.job_submission import JobStatus, JobSubmissionClient

from evalfleet.errors import InfrastructureError

T = TypeVar("T")

_LOG_TAIL = 2000


@dataclass(frozen=True, slots=True)
class JobState:
    """Where a job is; `ended` says that it will change no more."""

    status: str
    ended: bool
    message: str


class RayJobs:
    """The jobs of one cluster. Raises InfrastructureError when the cluster can't be reached."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = self._asked(lambda: JobSubmissionClient(address))

    def submit(self, entrypoint: str, submission: str, package: Path) -> None:
        """Start a job in the unpacked package; one that was submitted under this id already is fine."""
        try:
            self._client.submit_job(
                entrypoint=entrypoint, submission_id=submission, runtime_env={"working_dir": str(package)}
            )
        except RuntimeError as error:
            if "already exists" not in str(error):
                raise self._away(error) from error
        except (OSError, ValueError) as error:
            raise self._away(error) from error

    def state(self, submission: str) -> JobState:
        info = self._asked(lambda: self._client.get_job_info(submission))
        status = JobStatus(info.status)
        return JobState(status.value.lower(), status.is_terminal(), info.message or "")

    def log_tail(self, submission: str) -> str:
        """The last line that the job printed and that says something."""
        text = self._asked(lambda: self._client.get_job_logs(submission))[-_LOG_TAIL:]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def stop(self, submission: str) -> None:
        self._asked(lambda: self._client.stop_job(submission))

    def _asked(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (RuntimeError, OSError, ValueError) as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> InfrastructureError:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        hint = " (set RAY_AUTH_MODE=token)" if "401" in str(error) else ""
        return InfrastructureError(f"the jobs of the Ray at {self._address} can't be used: {said}{hint}")
