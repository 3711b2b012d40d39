"""Run a job one of whose parts always kills its worker, on a Ray cluster of its own, and print how it ends.

python tests/jobs/deadly_on_ray.py FOLDER; run by test_ray.py in a process of its own.
"""

import os
import sys
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    root = str(Path(__file__).parents[2])
    sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))  # of the workers
    from tests.jobs.small_work import SmallWork

    from whichtoken.errors import ShardFailed
    from whichtoken.jobs.work import Engine, run_parts

    def look(_: Any) -> None:
        import ray

        print("nodes:", [node["NodeManagerAddress"] for node in ray.nodes()], flush=True)

    try:
        run_parts(Engine("ray", workers=1, retries=1), SmallWork(folder, deadly=3, deaths=99), [(0, 2), (3, 5)], look)
    except ShardFailed as error:
        print(f"ShardFailed: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
