"""`python -m bench.floors [HOST:PORT SECONDS]`: a Ray driver with two actors and nothing else.

Without arguments its Ray is a fresh one, started as evalfleet starts its own. With an address it joins that one, and
its actors do nothing for so many seconds: no program that runs an agent in an actor can be done sooner.
"""

import logging
import sys
import time

import ray


@ray.remote(num_cpus=0)
class Idle:
    def idle(self, seconds: float) -> bool:
        time.sleep(seconds)
        return True


def start(address: str | None) -> None:
    if address is not None:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        return
    ray.init(
        address="local",
        include_dashboard=False,
        object_store_memory=100 << 20,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
    )


place, seconds = (sys.argv[1], float(sys.argv[2])) if len(sys.argv) == 3 else (None, 0.0)
start(place)
actors = [Idle.remote() for _ in range(2)]
answers = ray.get([actor.idle.remote(seconds) for actor in actors])
ray.shutdown()
sys.exit(0 if all(answers) else 1)
