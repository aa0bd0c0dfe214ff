"""Which branch a time decides, by the source of the code that reads it.

A case is a script and the line of the branch; 0: there is none. Add one by adding a line.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from presim.capture.script.expressions import source_of
from presim.capture.script.time_decisions import deciding_line_in

BRANCHES = [
    ("end = time.time() + 60\nwhile time.time() < end:\n    train()", 2),
    ("t0 = time.perf_counter()\nfor x in data:\n    train(x)\n    if time.perf_counter() - t0 > 30: break", 4),
    (
        "t0 = time.time()\nfor x in data:\n    train(x)\n    spent = time.time() - t0\n    if spent > 30:\n"
        "        break",
        5,
    ),
    ("for x in data:\n    late = limit and time.monotonic() > limit\n    if late:\n        save()", 3),
    ("stop = False\nwhile not stop:\n    train()\n    if time.time() > end:\n        stop = True", 2),
    ("def late():\n    return time.time() - t0 > 60\nfor x in data:\n    if late(): break", 4),
    (
        "class T:\n    def spent(self):\n        return time.time() - self.t0\nfor x in data:\n"
        "    if t.spent() > 9: break",
        5,
    ),
    ("class T:\n    def go(self):\n        self.t = time.time()\n    def end(self):\n        if self.t > 9: stop()", 5),
    ("def check(now):\n    if now > end:\n        raise SystemExit\nfor x in data:\n    check(time.time())", 2),
    (
        "for x in data:\n    minutes = (time.time() - t0) / 60\n    done = torch.tensor([minutes > 5])\n"
        "    dist.all_reduce(done)\n    if done.item():\n        exit()",
        5,
    ),
    ("for x in data:\n    if time.time() - saved > 600:\n        save()\n        saved = time.time()", 2),
    ("for x in data:\n    if time.time() - shown > 10:\n        print(loss.item())\n        shown = time.time()", 2),
    ("for x in data:\n    if (datetime.now() - t0).total_seconds() > 60:\n        break", 2),
    ("a, b = time.time(), 0\nfor x in data:\n    if a > 3: break", 3),
    ("if (now := time.time()) > end:\n    stop()", 1),
    ("while True:\n    if int(time.time()) % 60 == 7:\n        break", 2),
]
NONE = [
    "t0 = time.time()\nfor x in data:\n    train(x)\n    print(time.time() - t0)",
    "for i, x in enumerate(data):\n    t1 = time.time()\n    dt = t1 - t0\n    t0 = t1\n    if i % 10 == 0:\n"
    "        lossf = loss.item()\n        if i >= 5:\n            mfu = model.estimate_mfu(8, dt)\n"
    "        print(f'{dt * 1e3:.2f} ms')",
    "for x in data:\n    dt = time.time() - t0\n    if dt > 0:\n        rate = n / dt\n    print(rate)",
    "for x in data:\n    dt = time.time() - t0\n    rate = n / dt if dt > 0 else 0.0\n    wandb.log({'rate': rate})",
    "for x in data:\n    if time.time() - shown > 10:\n        print('still here')\n        shown = time.time()",
    "for x in data:\n    if time.time() - shown > 10:\n        logger.info('%d', step)\n"
    "        shown, n = time.time(), 0",
    "for x in data:\n    if dt := time.time() - t0:\n        writer.add_scalar('time', dt, step)",
    "def speed(start):\n    seconds = time.time() - start\n    if seconds == 0:\n        return {}\n"
    "    return {'s': 1 / seconds}",
    "times = []\nfor x in data:\n    times.append(time.time() - t0)\nif len(times) > 3:\n    train()",
    "best = 1e9\nfor x in data:\n    best = min(best, time.time() - t0)\nprint(best)",
    "until = time.time() + 0.1\nwhile time.time() < until:\n    pass",
    "meter.update(time.time() - end)\nend = time.time()",
    "torch.manual_seed(int(time.time()))",
    "name = f'run-{datetime.now():%H%M}'\nif name in names:\n    train()",
    "if step > 3:\n    t0 = time.time()",
]


def deciding_lines(code: str, path: Path) -> set[str]:
    """The lines that the clocks of a script decide."""
    path.write_text(code)
    source = source_of(str(path))
    assert source is not None
    calls = [node for node in source.by_position.values() if isinstance(node, ast.Call)]
    clocks = [
        call
        for call in calls
        if ast.unparse(call.func) in ("time.time", "time.monotonic", "time.perf_counter", "datetime.now")
    ]
    assert clocks
    return {line for call in clocks if (line := deciding_line_in(source, "script.py", call))}


@pytest.mark.parametrize(("code", "line"), BRANCHES)
def test_a_branch_that_a_time_decides_is_seen(code: str, line: int, tmp_path: Path) -> None:
    assert deciding_lines(code, tmp_path / "script.py") == {f"script.py:{line}"}


@pytest.mark.parametrize("code", NONE)
def test_measuring_and_printing_times_decides_nothing(code: str, tmp_path: Path) -> None:
    assert deciding_lines(code, tmp_path / "script.py") == set()
