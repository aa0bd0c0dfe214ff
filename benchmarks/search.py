"""CPU time and memory of `presim search` over the plans of a model; searched again, its study gives the same answer.

python benchmarks/search.py [MODEL] [--nodes N] [--knobs KNOB=V,V…]…; the default is Llama 3 70B on 512 H100.
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import tempfile
import time

from presim.options import RunOptions
from presim.search.ask import Asked, request_for_model
from presim.search.run import run
from presim.search.study import Answer

DEFAULT = ["tp=1,2,4,8", "pp=1,2,4,8", "vpp=1", "cp=1", "mbs=1,2,4,8", "shard=0"]


def main() -> None:
    """Search, search again from the study, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="llama3-70b")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--global-batch", type=int, default=1024)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--knobs", nargs="*", default=DEFAULT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(vary=given.knobs, study=os.path.join(folder, "study"), budget=given.budget)
        said = {"sequence": given.sequence, "global_batch": given.global_batch}
        request = request_for_model(given.model, asked, RunOptions(gpu="h100-sxm", nodes=given.nodes), said)
        print(request.space.describe())
        first, second = (timed(f"{name} search", lambda: run(request)) for name in ("first", "second"))
    assert given.budget or first == second, "a study that is searched again gives another answer"
    print("best:", first.best_point)


def timed(name: str, search: object) -> Answer:
    """An answer with what it took."""
    wall, before = time.monotonic(), cpu_s()
    answer: Answer = search()  # type: ignore[operator]
    fates = collections.Counter(trial.fate for trial in answer.trials)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{name}: {time.monotonic() - wall:.1f} s, {cpu_s() - before:.1f} s of CPU, largest process "
        f"{max(largest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024):.0f} MiB; {dict(fates)}"
    )
    return answer


def cpu_s() -> float:
    """CPU time of this process and its children that ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
