"""A Ray cluster of two workers with one core each, all on the loopback. Prints its address; ends with its standard input."""

import sys

from ray.cluster_utils import Cluster

MEMORY = {"object_store_memory": 100_000_000}

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **MEMORY})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **MEMORY)
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()
