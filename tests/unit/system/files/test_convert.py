"""Threads convert documents at once, as those of `presim app` do."""

from __future__ import annotations

import subprocess
import sys

# Twenty structs within each other, converted for the first time by eight threads that change places often: msgspec lets
# go of the interpreter while it reads the annotations of each.
PROGRAM = """
import sys, threading
import msgspec
from presim.system.files import {function}

sys.setswitchinterval(1e-6)
for _ in range(8):
    inner = msgspec.defstruct("Inner", [("size", int)])
    for depth in range(20):
        inner = msgspec.defstruct(f"Struct{{depth}}", [("inner", inner), ("next", "int | None", None)])
    document = {{"size": 1}}
    for depth in range(20):
        document = {{"inner": document}}
    barrier = threading.Barrier(8)
    converted = []

    def work():
        barrier.wait()
        converted.append({call})

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(converted) == 8
"""


def test_threads_may_convert_to_a_type_for_the_first_time_at_once() -> None:
    """By each of the three functions; msgspec alone ends the process by a signal."""
    calls = {
        "to_type": "to_type(document, inner)",
        "convert": "convert(document, inner)",
        "decode_json": "decode_json(msgspec.json.encode(document), inner)",
    }
    for function, call in calls.items():
        program = PROGRAM.format(function=function, call=call)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, ""), function
