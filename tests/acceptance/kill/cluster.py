"""A Ray that runs may join, in a process of its own: `python -m tests.acceptance.kill.cluster CPUS`.

It prints its address when it is up, adds a node for each line that it reads, and ends with its input.
"""

from __future__ import annotations

import sys
from typing import Any

from ray.cluster_utils import Cluster


def _node(cpus: int) -> dict[str, Any]:
    return {"num_cpus": cpus, "object_store_memory": 100 << 20, "include_dashboard": False}


def main(cpus: int) -> None:
    cluster = Cluster(initialize_head=True, head_node_args=_node(cpus))
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        cluster.add_node(**_node(cpus))
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
