"""A process that answers what-if questions: it keeps what presim has imported and compiled, so that answers are fast.

It reads one JSON list of words per line, runs them as the command line does, and writes one JSON object per line:
``{"code": exit code, "text": what was printed}``. Started as ``python -m presim.app.worker NICENESS``.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import threading

import msgspec

from presim.cli.main import run
from presim.system.files import decode_json
from presim.verbs.prepare import prefer_compiled_steps


def answer(line: bytes) -> dict[str, int | str]:
    """The answer to one line."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = run([str(word) for word in decode_json(line)])
    return {"code": int(code), "text": printed.getvalue()}


def main() -> None:
    """Answer lines of standard input until it ends."""
    os.nice(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints by itself is no answer
    # Beside the first answers: loading takes a second or two, and compiling, once for a CPU, a minute.
    threading.Thread(target=prefer_compiled_steps, daemon=True).start()
    gc.disable()
    for line in sys.stdin.buffer:
        out.write(msgspec.json.encode(answer(line)) + b"\n")
        out.flush()
        gc.collect()  # between answers: within one it took up to a tenth of the time


if __name__ == "__main__":
    main()
