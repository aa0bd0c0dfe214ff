"""What ranks do to each other in short scripts: who waits for whom, which jobs hang, and how GPUs are shared.

A case is a line of a table: a name, the number of ranks, the part of the script that differs, and what comes of it. Add
one by adding a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from presim.errors import HangError
from presim.evaluation.options import RunOptions
from support.captured import evaluated
from support.long_cases import marked

pytestmark = [pytest.mark.torch_cuda]

SETUP = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
local = int(os.environ["LOCAL_RANK"])
def setup(**options):
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", **options)
    return dist.get_rank()
def ones(size=1 << 20):
    return torch.ones(size, device="cuda")
"""
CYCLE, ABSENT, STUCK = "wait for each other in a cycle", "waits for rank", "every rank waits for another, rank 0 at "
# Rank 0 is late, and what it writes is needed by the others.
PREPARE = """
r = setup()
x = ones()
dist.all_reduce(x)
event, side = torch.cuda.Event(), torch.cuda.Stream()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prepared")
def prepare():
    sum(range(20_000_000))
    open(path, "w").write("ready")
def synchronize(after):
    after()
    torch.cuda.synchronize()
def record(after):
    after()
    event.record()
    event.synchronize()
def follow():
    dist.all_reduce(x)
    side.wait_stream(torch.cuda.current_stream())
    side.synchronize()
def message():
    for peer in range(1, dist.get_world_size()):
        if r == 0:
            dist.send(x, peer)
        elif r == peer:
            dist.recv(x, 0)
    torch.cuda.synchronize()
def replay():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    return lambda: (graph.replay(), torch.cuda.synchronize())
replayed = replay() if "replay" in sys.argv else None
def in_order(first):
    if not first:
        dist.barrier()
    yield
    if first:
        dist.barrier()
"""
READ = """
assert open(path).read() == "ready"
"""


class Case(NamedTuple):
    name: str
    ranks: int
    script: str
    outcome: str = ""  # of a hang: part of the message; empty: the script runs to its end


def prepared(wait: str) -> str:
    """Rank 0 prepares, all wait, all read."""
    return f"{PREPARE}\nif r == 0:\n    prepare()\n{wait}\n{READ}"


WAITS = [
    Case("barrier", 4, prepared("dist.barrier()")),
    Case("barrier of a device", 2, prepared("dist.barrier(device_ids=[local])")),
    Case("barrier of a group", 2, prepared("dist.barrier(group=dist.new_group([0, 1]))")),
    Case("synchronize", 2, prepared("synchronize(lambda: dist.all_reduce(x))")),
    Case("event", 2, prepared("record(lambda: dist.all_reduce(x, async_op=True).wait())")),
    Case("stream that follows", 2, prepared("follow()")),
    Case("broadcast read back", 2, prepared("dist.broadcast(x, 0); x.cpu()")),
    Case("gather", 4, prepared("synchronize(lambda: dist.all_gather([ones() for _ in range(4)], x))")),
    Case("messages", 3, prepared("message()")),
    Case("batched messages", 2, prepared("""synchronize(lambda: [w.wait() for w in dist.batch_isend_irecv(
    [dist.P2POp(dist.isend, x, 1 - r), dist.P2POp(dist.irecv, ones(), 1 - r)])])""")),
    Case("all to all", 2, prepared("synchronize(lambda: dist.all_to_all_single(ones(), x))")),
    Case("graph", 2, PREPARE + "replayed = replay()\nif r == 0: prepare()\nreplayed()" + READ),
    Case("blocking wait", 2,
         "os.environ['TORCH_NCCL_BLOCKING_WAIT'] = '1'" + prepared("dist.all_reduce(x, async_op=True).wait()")),
    Case("main process first", 2, PREPARE + """
from accelerate import PartialState
with PartialState().main_process_first():
    if r == 0:
        prepare()
    assert open(path).read() == "ready"
"""),
    Case("gloo", 2, prepared("dist.monitored_barrier(dist.new_group(backend='gloo'))")),
    Case("store", 2, PREPARE + """
store = dist.distributed_c10d._get_default_store()
if r == 0: prepare(); store.set("done", "1")
store.wait(["done"])
""" + READ),
    Case("a rank that ends early", 2, PREPARE + "if r == 0: sys.exit(0)\nsynchronize(lambda: dist.barrier())", ABSENT),
]  # fmt: skip

CROSSED = """
r = setup()
x, y = ones(), ones()
a, b = dist.new_group(), dist.new_group()
def reduce(group, **options):
    return dist.all_reduce(x, group=group, **options)
"""
# Communicators are created at their first use, which waits for all members.
CREATED = CROSSED + "reduce(a); reduce(b); torch.cuda.synchronize()\n"
BY_NAME = """
r = setup()
x = ones()
a, b = (dist.new_group(group_desc=name) for name in names)
for g in ([a, b] if r == 0 else [b, a]): dist.all_reduce(x, group=g)"""
ORDERS = [
    Case("crossed", 2, CROSSED + "for g in ([a, b] if r == 0 else [b, a]): reduce(g)", CYCLE),
    Case("crossed by one of four", 4, CROSSED + "for g in ([a, b] if r else [b, a]): reduce(g)", CYCLE),
    Case("created in opposite orders", 2, CROSSED + """side = torch.cuda.Stream()
def other():
    with torch.cuda.stream(side): reduce(b)
for call in ([lambda: reduce(a), other] if r == 0 else [other, lambda: reduce(a)]): call()""",
         STUCK),
    Case("three crossed", 3, CROSSED + """c = dist.new_group()
for g in ([a, b, c], [b, c, a], [c, a, b])[r]: reduce(g)""", CYCLE),
    Case("crossed with synchronisation", 2,
         CROSSED + "for g in ([a, b] if r == 0 else [b, a]): reduce(g); torch.cuda.synchronize()", CYCLE),
    Case("crossed on two streams", 2, CREATED + """side = torch.cuda.Stream()
def other():
    with torch.cuda.stream(side): reduce(b)
for call in ([lambda: reduce(a), other] if r == 0 else [other, lambda: reduce(a)]): call()
torch.cuda.synchronize()"""),
    Case("crossed on two streams with synchronisation", 2, CREATED + """side = torch.cuda.Stream()
def other():
    with torch.cuda.stream(side): reduce(b); side.synchronize()
for call in ([lambda: (reduce(a), torch.cuda.synchronize()), other] if r == 0 else
             [other, lambda: (reduce(a), torch.cuda.synchronize())]): call()""", CYCLE),
    Case("crossed and waited for later", 2, CREATED + """
works = [reduce(g, async_op=True) for g in ([a, b] if r == 0 else [b, a])]
for work in works: work.wait()
torch.cuda.synchronize()"""),
    Case("groups used by one rank each", 2, CROSSED + "reduce(a if r == 0 else b)", ABSENT),
    Case("message and collective", 2, CROSSED + """
if r == 0: dist.send(x, 1, group=a); reduce(b)
else: reduce(b); dist.recv(x, 0, group=a)""", CYCLE),
    Case("exchange in one batch", 2, CROSSED + """
ops = [dist.P2POp(dist.isend, x, 1 - r), dist.P2POp(dist.irecv, y, 1 - r)]
for work in dist.batch_isend_irecv(ops if r == 0 else ops[::-1]): work.wait()
torch.cuda.synchronize()"""),
    Case("ring of pairs", 4, CROSSED + """
pairs = [dist.new_group([i, (i + 1) % 4]) for i in range(4)]
reduce(pairs[r]); reduce(pairs[r - 1])""", CYCLE),
    Case("ring of pairs in order", 4, CROSSED + """
pairs = [dist.new_group([i, (i + 1) % 4]) for i in range(4)]
for i in sorted({r, (r - 1) % 4}): reduce(pairs[i])
torch.cuda.synchronize()"""),
    Case("created in another order", 3, CROSSED + """
order = [[0, 1], [0, 2]] if r else [[0, 2], [0, 1]]
groups = {tuple(m): dist.new_group(m, use_local_synchronization=True) for m in order if r in m}
for members in sorted(groups): reduce(groups[members])
torch.cuda.synchronize()""", STUCK),  # PyTorch numbers such groups: their members have two names for one
    Case("names crossed", 2, "names = 'mesh_dp', 'mesh_dp_cp'" + BY_NAME, CYCLE),
    Case("equal names crossed", 2, "names = 'mesh_dp', 'mesh_dp'" + BY_NAME, CYCLE),
    Case("splits crossed", 2, """r = setup(device_id=torch.device("cuda", local))
x = ones()
a, b = (dist.split_group(split_ranks=[[0, 1]]) for _ in range(2))
for g in ([a, b] if r == 0 else [b, a]): dist.all_reduce(x, group=g)""", CYCLE),
]  # fmt: skip

TOGETHER = "dist.init_process_group('nccl'); dist.all_reduce(torch.ones(1, device='cuda'))"
TWO = "Duplicate GPU detected : rank 0 and rank {} both on CUDA device 1b000"
GPUS = [
    Case("all on the first GPU", 2, TOGETHER, TWO.format(1)),
    Case("two on each GPU", 4, f"torch.cuda.set_device(local % 2)\n{TOGETHER}", TWO.format(2)),
    Case("bound to one device", 2, "dist.init_process_group('nccl', device_id=torch.device('cuda', 0)); dist.barrier()",
         TWO.format(1)),
    Case("chosen by a variable", 2, f"os.environ['CUDA_VISIBLE_DEVICES'] = str(local)\n{TOGETHER}"),
    Case("the same one by a variable", 2, f"os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n{TOGETHER}", TWO.format(1)),
    Case("loaded by all to the first GPU", 8, """setup(); dist.barrier()
held = torch.empty(12 << 30, dtype=torch.uint8, device="cuda:0")
dist.barrier()""", "Tried to allocate 12.00 GiB. GPU 0 has"),
    Case("memory of others", 2, """r = setup(); dist.barrier()
if r == 1: held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda:0")
dist.barrier()
free, total = torch.cuda.mem_get_info(0)
assert 8 < (total - free) / 2**30 < 10
dist.barrier()"""),
    Case("memory given back", 2, """r = setup(); dist.barrier()
for turn in range(2):
    if r == turn:
        held = torch.empty(60 << 30, dtype=torch.uint8, device="cuda:0")
        del held; torch.cuda.empty_cache()
    dist.barrier()"""),
]  # fmt: skip


def outcome(case: Case, folder: Path) -> str:
    """The error of the script, or the sentence on the hang; empty if the job runs to its end."""
    script = folder / "script.py"
    script.write_text(SETUP + case.script)
    try:
        result = evaluated(script, options=RunOptions(gpu="a100-80gb-sxm", world_size=case.ranks, steps=0)).result
    except HangError as error:
        return str(error)
    return result.error


# Each has a sibling that waits, crosses or shares in the same way.
LONG = (
    *("barrier of a device", "barrier of a group", "synchronize", "event", "stream that follows", "gather", "messages"),
    *("crossed by one of four", "created in opposite orders", "three crossed", "crossed with synchronisation"),
    *("crossed on two streams with synchronisation", "groups used by one rank each", "message and collective"),
    *("ring of pairs", "ring of pairs in order", "exchange in one batch", "names crossed", "equal names crossed"),
    *("blocking wait", "all to all", "two on each GPU", "loaded by all to the first GPU"),
    *("crossed", "created in another order", "main process first", "broadcast read back", "graph"),
)


@pytest.mark.parametrize("case", marked([*WAITS, *ORDERS, *GPUS], LONG, lambda case: case.name))
def test_the_job_ends_as_on_a_cluster(case: Case, tmp_path: Path) -> None:
    found = outcome(case, tmp_path)
    assert case.outcome in found if case.outcome else not found, found
