"""Whether device work can depend on a value, by the source of the code that reads it.

A case is a script in which `read()` yields the value, and whether its uses are confined. Add one by adding a line.
"""

from __future__ import annotations

import linecache
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import MagicMock

import pytest

from presim.capture.script.device_indices import index_lines, may_use_index
from presim.capture.script.expressions import source_of
from presim.capture.script.value_uses import is_confined, tells_only_zero

CONFINED = [
    "torch.cuda.set_device(int(read()))",
    "torch.cuda.set_device(read() % torch.cuda.device_count())",
    "device = torch.device('cuda', read())",
    "device = torch.device(f'cuda:{read()}')",
    "device = 'cuda:' + str(read())",
    "device = 'cuda:%d' % read()",
    "device = 'cuda:{}'.format(read())",
    "local = int(read())\nmodel.to(local)\nDDP(model, device_ids=[local], output_device=local)",
    "local = read()\ndef build():\n    return model.cuda(local)\nbuild()",
    "rank = read()\nlocal = rank - rank // 8 * 8\ntorch.cuda.set_device(local)",
    "dist.init_process_group('nccl', rank=read(), world_size=4)",
    "torch.load('file', map_location={'cuda:0': f'cuda:{read()}'})",
    "x = torch.ones(4, device=read())",
    "read()",
    "print('rank', read())",
    "rank = read()\nif rank == 0:\n    print(f'rank {rank} of {world}')",
    "rank = read()\nis_main = rank == 0\nif is_main:\n    logger.info('start %s', rank)\nelse:\n    pass",
    "local = read()\nif local != -1:\n    train()",
    "local = read()\nif local is not None:\n    train()",
    "def setup():\n    v = read()\n    torch.cuda.set_device(v)\n    return v\nlocal = setup()\nmodel.to(local)",
    "def setup():\n    return world, read(), name\n_, local, _ = setup()\nmodel.to(local)",
    "def setup():\n    return {'at': read(), 'of': world}\nplace = setup()\nmodel.to(place['at'])\nuse(place['of'])",
    "def main(local, steps):\n    torch.cuda.set_device(local)\n    train(steps)\nmain(read(), 3)",
    "def main(*, local):\n    torch.cuda.set_device(local)\nmain(local=read())",
    "class Loop:\n    def __init__(self):\n        self.at = read()\n        model.to(self.at)\nLoop()",
    "os.environ['CUDA_VISIBLE_DEVICES'] = str(read())",
    "os.environ['LOCAL_RANK'] = read()",
    "os.environ.setdefault('RANK', read())",
    "losses = []\nlosses.append(read())\nprint(sum(losses) / 3, losses[-1])",
    "total = 0\ntotal += read()\nprint(total)",
    "if (local := read()) != -1:\n    torch.cuda.set_device(local)",
    "ranks = [rank for rank in range(4)]\nrank = read()\ntorch.cuda.set_device(rank)\nuse(ranks)",
]
UNCONFINED = [
    "train(read() == 3)",
    "rank = read()\nif rank % 8 == 3:\n    train()",
    "if read() == 0:\n    print(loss.item())",
    "if read() == 0:\n    print('x')\nelse:\n    train()",
    "while read() < 2:\n    break",
    "work = heavy if read() else light",
    "read() < 2 and train()",
    "torch.manual_seed(read() + 7)",
    "shard = data[read()]",
    "for step in range(read()):\n    pass",
    "x = torch.ones(read(), device='cuda')",
    "local = read()\nmodel.to(local)\nif local == 3:\n    train()",
    "rank = read()\ndef step():\n    if rank == 3:\n        train()\nstep()",
    "rank = read()\nclass Model:\n    def forward(self):\n        return use(rank)\nModel().forward()",
    "rank = read()\ndef step():\n    copies = [rank for rank in range(2)]\n    return copies\ntrain(rank)\nstep()",
    "def setup():\n    return world, read()\nworld, rank = setup()\nif rank == 3:\n    train()",
    "def setup():\n    return world, read()\nplace = setup()\ntrain(place[1])",
    "def setup():\n    return world, read()\ntrain(*setup())",
    "def main(rank):\n    if rank == 1:\n        train()\nmain(read())",
    "main(read())",
    "class Loop:\n    def fit(self):\n        self.at = read()\n        use(self.at)\nLoop().fit()",
    "config.rank = read()",
    "options = dict(rank=read())\ntrain(**options)",
    "os.environ['EXTRA'] = read()",
    "name = f'shard-{read()}.bin'\nopen_file(name)",
    "losses = []\nlosses.append(read())\nif losses[-1] < 2:\n    train()",
    "best = min(read(), 3)\ntrain(best)",
    "assert read() < 8",
    "global_rank: int = read()\ntrain(global_rank)",
    "eval('read()')",
]


ZERO_ONLY = [
    "if read() == 0:\n    print(loss.item())",
    "rank = read()\nfor step in range(2):\n    if rank == 0 and step % 2 == 0:\n        print(loss.item())",
    "is_main = 0 != int(read())\nif not is_main:\n    train()",
    "if not read():\n    train()",
    "rank = read()\nwork = heavy if rank else light\nprint(rank)",
    "rank = read()\nmodel.to(rank % 8)\nif rank == 0:\n    train()",
    "def main(rank):\n    torch.cuda.set_device(rank)\n    if rank == 0:\n        train()\nmain(read())",
    "if read() == '0':\n    train()",
]
MORE_THAN_ZERO = [
    "rank = read()\nif rank % 8 == 0:\n    train()",
    "if read() - 1 == 0:\n    train()",
    "rank = read()\nif rank == 0:\n    train()\nelif rank == 1:\n    use(loss)",
    "if read() == 1:\n    train()",
    "if read() <= 0:\n    train()",
    "if read() == False:\n    train()",
    "if abs(read()) == 0:\n    train()",
    "ranks = []\nranks.append(read())\nif ranks[-1] == 0:\n    train()",
    "total = 1\ntotal += read()\nif total == 0:\n    train()",
    "train(read())",
]


class _Reader:
    """`read()` of a case: notes whether the uses of its value are confined."""

    def __init__(self, judge: Callable[[FrameType], bool] = is_confined) -> None:
        self.verdicts: list[bool] = []
        self._judge = judge

    def __call__(self) -> int:
        self.verdicts.append(self._judge(sys._getframe(1)))
        return 0


def verdicts(
    script: str,
    path: Path,
    name: str = "__main__",
    judge: Callable[[FrameType], bool] = is_confined,
    **more: Any,
) -> list[bool]:
    """Run a script and return the verdict of each call of `read()`."""
    path.write_text(script)
    linecache.checkcache()
    source_of.cache_clear()
    read = _Reader(judge)
    names = {word: MagicMock() for word in ("torch", "dist", "model", "DDP", "logger", "os", "loss", "data", "config")}
    functions = {word: lambda *args, **kwargs: None for word in ("train", "use", "heavy", "light", "open_file", "main")}
    code = compile(script, str(path), "exec")
    exec(code, {"__name__": name, "read": read, "world": 4, "steps": 3, "name": "", **names, **functions, **more})
    return read.verdicts


@pytest.mark.parametrize("script", CONFINED)
def test_choosing_a_device_and_printing_confine_a_value(script: str, tmp_path: Path) -> None:
    assert all(verdicts(script, tmp_path / "script.py"))


@pytest.mark.parametrize("script", UNCONFINED)
def test_any_other_use_does_not(script: str, tmp_path: Path) -> None:
    assert not any(verdicts(script, tmp_path / "script.py"))


@pytest.mark.parametrize("script", ZERO_ONLY)
def test_a_comparison_with_zero_tells_only_zero_apart(script: str, tmp_path: Path) -> None:
    assert all(verdicts(script, tmp_path / "script.py", judge=tells_only_zero))
    assert not any(verdicts(script, tmp_path / "script.py"))


@pytest.mark.parametrize("script", MORE_THAN_ZERO)
def test_other_comparisons_and_those_of_computed_values_tell_more(script: str, tmp_path: Path) -> None:
    assert not any(verdicts(script, tmp_path / "script.py", judge=tells_only_zero))


@pytest.mark.parametrize(("use", "is_confined"), [("model.to(rank())", True), ("train(rank() == 3)", False)])
def test_a_value_is_followed_into_the_file_that_calls_its_reader(use: str, is_confined: bool, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("def rank():\n    return read()\n")
    load = "exec(compile(open(HELPERS).read(), HELPERS, 'exec'), space)\nrank = space['rank']\n"
    read = _Reader()
    space = {"__name__": "helpers", "read": read}
    verdicts(load + use, tmp_path / "script.py", space=space, HELPERS=str(tmp_path / "helpers.py"))
    assert read.verdicts == [is_confined]


def test_variables_of_a_module_that_others_import_are_not_confined(tmp_path: Path) -> None:
    assert verdicts("local = read()\nmodel.to(local)", tmp_path / "helpers.py", name="helpers") == [False]


def test_lines_that_use_the_index_of_a_device(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent("""
        torch.cuda.set_device(x.device.index)
        if x.device.index == 3: train()
        if str(device) == "cuda:3": train()
        names.index("cuda")
        torch.load("file", map_location={"cuda:0": "cuda:1"})
        train(device.index)
        torch.ones(2, device=torch.cuda.current_device())
        train(torch.cuda.current_device())
        train(get=torch.cuda.current_device)
        model.to(options.local_rank)
        train(options.local_rank)
        train(x.get_device())
        train(ctypes.CDLL(None).getenv(b"RANK"), os.getenv("RANK"))
        train(open("/proc/self/environ"))
        """)
    )
    source = source_of(str(path))
    assert source is not None
    found = index_lines(source, ["local_rank"])
    assert found == {
        3: "device index",
        4: "device index",
        7: "device index",
        9: "current_device",
        10: "current_device",
        12: "local_rank",
        13: "get_device",
        14: "C environment",
        15: "C environment",
    }
    lines = path.read_text().splitlines()
    assert all(may_use_index(lines[number - 1], ["local_rank"]) for number in found)
    assert not any(
        map(may_use_index, ['names.index("cuda")', "devices = names.index (1)", "rank = options.local_rank"])
    )
