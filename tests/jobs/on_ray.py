"""Run one corpus job on a Ray cluster of two nodes on 127.0.0.1, and kill a node or a worker on the way.

python tests/jobs/on_ray.py DATA MODEL OUT (nothing | node | worker); run by test_ray.py in a process of its own.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

CPUS = 3.0  # of each node: enough for both actors and the tasks that read, if the other node dies


def main(data: str, model: str, out: str, victim: str) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # or Ray replaces 127.0.0.1 by this machine's address
    import ray
    from ray.cluster_utils import Cluster

    from whichtoken.jobs import CorpusFiles, Engine, ExplainOptions, ModelChoice, explain_corpus

    head = {"num_cpus": CPUS, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    other = cluster.add_node(num_cpus=CPUS, node_ip_address="127.0.0.1")
    ray.init(address=cluster.address, log_to_driver=False)
    victims = [victim]

    def show(progress: Any) -> None:
        if progress.done and victims:
            if victims.pop() == "node":
                cluster.remove_node(other, allow_graceful=False)
                print("killed a node", flush=True)
            elif victim == "worker":
                (pid, *_) = actors_of(cluster.head_node) + actors_of(other)
                os.kill(pid, signal.SIGKILL)
                print("killed a worker", flush=True)

    try:
        engine = Engine("ray", workers=2, show=show, say=print)
        options = ExplainOptions(rows_per_part=2)
        manifest = explain_corpus(CorpusFiles((data,)), out, ModelChoice(model), "posterior", options, engine)
        print(f"{manifest.n_explained} rows explained", flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


def actors_of(node: Any) -> list[int]:
    """The processes of a node's actors."""
    raylets = {process.process.pid for process in node.all_processes["raylet"]}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            title = (path / "cmdline").read_text()
        except OSError:  # it ended meanwhile
            continue
        if parent in raylets and title.startswith("ray::MapWorker"):
            found.append(int(path.name))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
