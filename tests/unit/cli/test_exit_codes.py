"""How each verb ends: the table of `presim.errors.MEANINGS`, with a case for each kind of verb.

A new case is a line: the words after ``presim``, and the code. ``{job}`` is a saved job of 128 GPUs; ``{tight}``
one that an earlier case saves.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from presim.cli import main
from presim.errors import MEANINGS, ExitCode
from presim.report import json
from presim.trace import job_store
from support import workloads

_PLAN = "compose llama3-8b --gpu h100-sxm --nodes 1 --gpus-per-node 8 --seq 2048"
_TIGHT = "compose llama3-70b --gpu h100-sxm --nodes 1 --gpus-per-node 8 --seq 4096"
CASES = (
    ("models", ExitCode.STANDS),
    ("hardware list", ExitCode.STANDS),
    ("hardware show h9000", ExitCode.UNUSABLE),
    ("nonsense", ExitCode.UNUSABLE),
    ("simulate no-such-folder", ExitCode.UNUSABLE),
    ("simulate {job}", ExitCode.STANDS),
    (_PLAN, ExitCode.STANDS),
    (_TIGHT, ExitCode.DOES_NOT_FIT),
    (f"{_TIGHT} -q --json {{out}} --save {{tight}}", ExitCode.DOES_NOT_FIT),
    ("simulate {tight}", ExitCode.DOES_NOT_FIT),
    (f"{_TIGHT} --tp 3", ExitCode.UNUSABLE),
    ("search llama3-70b --gpu h100-sxm --world-size 8 --seq 4096 --mbs 1 --tp 1 --pp 1", ExitCode.DOES_NOT_FIT),
    ("serve llama3-70b --gpu h100-sxm --rate 1", ExitCode.DOES_NOT_FIT),
    ("serve llama3-8b --gpu h100-sxm --rate 1 --requests 8", ExitCode.STANDS),
    ("prefill llama3-70b --gpu h100-sxm --sp 1 --lengths 1000", ExitCode.DOES_NOT_FIT),
    (
        "rl llama3-70b --gpu h100-sxm --nodes 1 --gpus-per-node 2 --rollout-tp 2 --response 512 --prompts 8",
        ExitCode.DOES_NOT_FIT,
    ),
    ("training {job}", ExitCode.UNUSABLE),
    ("training {job} --tokens 1e12 --runs 2", ExitCode.STANDS),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved job, and where cases write."""
    job = tmp_path_factory.mktemp("job")
    job_store.save([workloads.llama_8b(steps=2, layers=3)], job)
    return {"job": job, "out": job / "out.json", "tight": job / "tight"}


@pytest.mark.parametrize(("words", "code"), CASES, ids=[f"{code.name}: {words[:60]}" for words, code in CASES])
def test_a_verb_ends_with_the_code_of_the_table(words: str, code: ExitCode, folders: dict[str, Path]) -> None:
    assert main.run(shlex.split(words.format(**folders))) == code


def test_the_result_of_a_job_that_does_not_fit_is_written(folders: dict[str, Path]) -> None:
    main.run(shlex.split(f"{_TIGHT} -q --json {folders['out']}"))
    assert json.decode(folders["out"].read_bytes()).memory.fits is False


def test_each_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)
