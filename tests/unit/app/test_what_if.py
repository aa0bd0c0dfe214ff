"""The process that answers what-if questions: it is kept, and it is replaced when it takes too long or dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.app.what_if import WhatIf, last_sentence
from presim.app.worker import answer
from presim.errors import InputError

VALUES = {"model": "llama3-8b", "gpu": "h100-sxm", "rate": "4", "requests": "20"}


def test_a_question_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    what_if = WhatIf(tmp_path, limit_s=0.05)
    with pytest.raises(InputError, match=r"no answer within 0.05 s: run it as a job instead"):
        what_if.ask("serve", VALUES)
    what_if.close()


def test_a_process_that_died_is_replaced(tmp_path: Path) -> None:
    what_if = WhatIf(tmp_path)
    first = what_if.ask("serve", VALUES)
    process = what_if._process
    assert process is not None
    process.kill()
    process.wait()
    assert what_if.ask("serve", VALUES) == first
    what_if.close()


def test_a_line_is_answered_by_the_command_line() -> None:
    reply = answer(b'["hardware", "show", "h100-sxmx"]')
    assert reply["code"] == 2
    assert last_sentence(str(reply["text"])).startswith("no GPU, node type or fabric is called 'h100-sxmx'")


def test_the_last_sentence_has_no_name_before_it() -> None:
    assert last_sentence("report\npresim: no such file\n") == "no such file"
    assert last_sentence("Usage: presim\nError: No such option '--x'.\n") == "No such option '--x'."
    assert last_sentence("") == "the command printed nothing"
