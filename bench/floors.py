"""`python -m bench.floors`: a fresh Ray with two actors and nothing else, started as evalfleet starts its own."""

import logging
import sys

import ray


@ray.remote(num_cpus=0)
class Idle:
    def here(self) -> bool:
        return True


ray.init(
    address="local",
    include_dashboard=False,
    object_store_memory=100 << 20,
    log_to_driver=False,
    logging_level=logging.ERROR,
    _node_ip_address="127.0.0.1",
)
actors = [Idle.remote() for _ in range(2)]
answers = ray.get([actor.here.remote() for actor in actors])
ray.shutdown()
sys.exit(0 if all(answers) else 1)
