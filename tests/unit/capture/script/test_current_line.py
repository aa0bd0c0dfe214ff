"""Finding the user's line in the dump of Python's fault handler."""

from __future__ import annotations

import sys
import sysconfig

from presim.capture.script.current_line import calling_line, innermost


def test_the_innermost_line_of_the_user_is_found_below_libraries() -> None:
    """Library threads come first, the main thread last; innermost frames first."""
    library, site = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    dump = f"""Thread 0x01 (most recent call first):
  File "{library}/threading.py", line 327 in wait

Current thread 0x02 (most recent call first):
  File "{site}/torch/_tensor.py", line 10 in item
  File "/home/me/my project/train.py", line 42 in step
  File "/home/me/my project/train.py", line 50 in <module>
  File "<frozen runpy>", line 88 in _run_code
"""
    assert innermost(dump) == "/home/me/my project/train.py:42"


def test_a_dump_without_a_line_of_the_user_gives_none() -> None:
    assert innermost("") == ""
    assert innermost('  File "<frozen importlib>", line 1 in load\n') == ""


def test_the_calling_line_is_the_user_s_however_deep_libraries_run() -> None:
    library = compile("found = calling_line()", f"{sysconfig.get_path('stdlib')}/library.py", "exec")
    names = {"calling_line": calling_line}
    here = sys._getframe().f_lineno + 1
    exec(library, names)
    assert names["found"] == f"{__file__}:{here}"
