"""Whether what is around an arm works: most of its last attempts failing of it pause the arm. Pure.

An arm is well until half of a whole window has failed; then it is paused, and a probe attempt is granted now and then.
The first probe that ends well lets everything be tried again, and the next failure of an attempt granted since pauses
again. It is well again once a window holds few failures: until then no failure counts against its case.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from enum import StrEnum

from evalfleet.errors import FailureKind

#: Failures of what is around an arm: they say nothing of the case, and the next case will most likely meet them too.
OUTAGES = frozenset({FailureKind.SANDBOX, FailureKind.PROVIDER, FailureKind.INFRASTRUCTURE})
#: How an attempt may end with nothing said about it: a backend that hangs looks like a slow agent.
_SILENT = frozenset({FailureKind.DEADLINE, FailureKind.WORKER, FailureKind.CANCELLED})

#: How many ended attempts of an arm are looked at.
WINDOW = 20
#: So many failures among them pause the arm: half of the window, so that a run of a few cases fails quickly instead.
PAUSES_AT = 10
#: So few failures in a whole window make an arm well again: far from `PAUSES_AT`, so that luck does not.
WELL_AT = 4
#: Seconds from a pause to its first probe, doubled from probe to probe, and the most between two.
FIRST_PROBE = 5.0
LAST_PROBE = 60.0


class Health(StrEnum):
    """Of what is around an arm."""

    WELL = "well"
    PAUSED = "paused"
    TRYING = "trying"


@dataclass(slots=True)
class Breaker:
    """One arm's last attempts, and what follows from them. Times are on the coordinator's monotonic clock.

    `recent` holds why each failed, nothing for one that shows that all works. Only an attempt from `evidence_from`
    on tells something new: older ones began before the last change of `health`. `paused_at` is when the last pause
    began, `failed_at` when the last failure came, `probe_at` when the next probe is due.
    """

    recent: deque[str] = field(default_factory=lambda: deque[str](maxlen=WINDOW))
    health: Health = Health.WELL
    evidence_from: int = 0
    paused_at: float = 0.0
    failed_at: float = 0.0
    probe_at: float = 0.0
    probe_every: float = FIRST_PROBE

    @property
    def failures(self) -> int:
        return len(self.recent) - self.recent.count("")

    @property
    def forgives(self) -> bool:
        """Whether a failure now is the arm's and not its case's."""
        return self.health is not Health.WELL

    @property
    def fails_for(self) -> float:
        """Seconds from the beginning of the pause to the last failure in it; 0 when not paused."""
        return self.failed_at - self.paused_at if self.health is Health.PAUSED else 0.0

    def ended(self, attempt: int, failure: str, newest: int, now: float) -> None:
        """Take in how an attempt ended; every attempt granted from now on has an id of at least `newest`."""
        self.recent.append(failure)
        news = attempt >= self.evidence_from
        if failure:
            self.failed_at = now
        match self.health:
            case Health.WELL if failure and self.failures >= PAUSES_AT:
                self.pause(newest, now)
            case Health.PAUSED if not failure and news:
                self.health, self.evidence_from = Health.TRYING, newest
            case Health.TRYING if failure and news:
                self.pause(newest, now)
            case Health.TRYING if len(self.recent) == WINDOW and self.failures <= WELL_AT:
                self.health = Health.WELL
            case _:
                pass

    def pause(self, newest: int, now: float) -> None:
        """Grant probes only, from now on."""
        self.health, self.evidence_from = Health.PAUSED, newest
        self.paused_at = self.failed_at = now
        self.probe_at, self.probe_every = now + FIRST_PROBE, FIRST_PROBE

    def admits(self, now: float) -> bool:
        """Whether an attempt may be granted: any, or while paused the probe that is due."""
        return self.health is not Health.PAUSED or now >= self.probe_at

    def granted(self, now: float) -> None:
        """An attempt was granted; while paused it is a probe."""
        if self.health is Health.PAUSED:
            self.probe_every = min(LAST_PROBE, 2 * self.probe_every)
            self.probe_at = now + self.probe_every

    def words(self) -> str:
        """Why the arm is paused, without its name."""
        reasons = Counter(reason for reason in self.recent if reason)
        named = " or ".join(reason for reason, _ in reasons.most_common())
        return f"{self.failures} of the last {len(self.recent)} attempts ended with {named}"


def tells(kind: FailureKind | None, code: str | None, retried: Set[FailureKind]) -> str | None:
    """What the end of an attempt tells of what is around its arm: why that failed, "" if it works, None for nothing.

    A failure that is not `retried` is a result: who asked for that wants no pause.
    """
    if kind in OUTAGES:
        return f"{kind}: {code}" if kind in retried else None
    return None if kind in _SILENT else ""


def restored(recent: Iterable[str], newest: int, now: float) -> Breaker:
    """The breaker of an arm whose attempts, the oldest first, ended so before this coordinator began."""
    breaker = Breaker(deque(recent, maxlen=WINDOW))
    if breaker.failures >= PAUSES_AT:
        breaker.pause(newest, now)
    return breaker
