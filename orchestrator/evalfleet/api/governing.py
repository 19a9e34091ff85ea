"""The governor of a worker's model calls, as its run configures it."""

from __future__ import annotations

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.governor.local import Consumer, LocalGovernor, Rationing
from evalfleet.governor.messages import RateLimits
from evalfleet.model.experiment import Experiment
from evalfleet.ports import Clock
from evalfleet.randomness import SystemRandom
from evalfleet.settings import EnvironmentSecrets


def rate_limits(experiment: Experiment) -> dict[str, RateLimits]:
    """The experiment's rates by `provider:model`."""
    return {
        name: RateLimits(
            requests_per_minute=rate.requests_per_minute,
            tokens_per_minute=rate.tokens_per_minute,
            concurrency=rate.concurrency,
        )
        for name, rate in experiment.rate.items()
    }


def local_governor(blueprint: RunBlueprint, worker: str, rationing: Rationing, clock: Clock) -> LocalGovernor:
    """What admits the model calls of one worker. `rationing` is the governor that it follows."""
    random = SystemRandom()
    consumer = Consumer(
        run=blueprint.run,
        worker=f"{worker}-{random.bits(32):08x}",
        rates=rate_limits(blueprint.experiment),
        secrets=EnvironmentSecrets(),
    )
    return LocalGovernor(consumer, rationing, clock, random)
