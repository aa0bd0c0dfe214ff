"""Failures are reported with one sentence and the next action; no result is lost or half written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

from presim.capture.setup.environment import find_compiler
from presim.errors import ExitCode
from presim.trace import job_store
from support import workloads
from support.captured import EXAMPLES
from support.command import presim, processes_of, start, without_progress

pytestmark = pytest.mark.torch_cuda

ONE = ("--gpu", "h100-sxm", "--world-size", "1")
WORK = "import os, signal, sys, torch\nx = torch.ones(64, 64, device='cuda')\nx @ x\n"


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def sentence(stderr: str) -> str:
    """The single line written by presim itself."""
    lines = [line for line in without_progress(stderr).splitlines() if line.startswith("presim: ")]
    assert len(lines) == 1, stderr
    return lines[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--gpu", "h100-smx"), "did you mean h100-sxm"),
        ((), "no GPU is named: use --gpu"),
        (("--gpu", "h100-sxm", "--world-size", "12"), "world size 12 is not a multiple of 8"),
        (("--gpu", "h100-sxm", "--nodes", "3", "--world-size", "16"), "cannot be spread over 3 nodes"),
        (("--gpu", "h100-sxm", "--world-size", "8", "--rank", "8"), "choose from 0 to 7"),
        (("--gpu", "mi300x"), "mi300x cannot be emulated"),
        (("--gpu", "h100-sxm", "--json", "/nowhere/r.json"), "there is no such directory"),
        (("--gpu", "h100-sxm", "--save", "/etc/hostname/x"), "choose another directory"),
    ],
)
def test_invalid_options_are_reported_before_the_script_runs(
    options: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    ended = presim("run", *options, write(tmp_path, "print('ran')\n"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in sentence(ended.stderr)


@pytest.mark.parametrize(
    ("options", "meant"),
    [(("--gpu", "h100-sxm", "--stepz", "3"), "--steps"), (("--gpus", "8", "train.py", "--set", "lr='1'"), "--gpu")],
)
def test_an_unknown_option_is_named_whatever_follows(options: tuple[str, ...], meant: str) -> None:
    ended = presim("run", *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "No such option" in ended.stderr
    assert re.search(rf"{meant}\b", ended.stderr)


def test_a_missing_script_or_module_is_named(tmp_path: Path) -> None:
    ended = presim("run", *ONE, "absent.py", cwd=tmp_path)
    assert ended.returncode == 2
    assert f"there is no script 'absent.py' (working directory {tmp_path})" in sentence(ended.stderr)
    ended = presim("run", *ONE, "-m", "absent.training", cwd=tmp_path)
    assert (ended.returncode, "there is no module 'absent'" in sentence(ended.stderr)) == (2, True)


def test_a_script_that_raises_shows_its_own_traceback_and_keeps_its_trace(tmp_path: Path) -> None:
    """The traceback has no frame of presim."""
    script = write(tmp_path, WORK + "def loss():\n    raise ValueError('not a number')\nloss()\n")
    ended = presim("run", *ONE, "--save", tmp_path / "t", "--json", tmp_path / "r.json", script)
    assert ended.returncode == ExitCode.SCRIPT_FAILED
    frames = [line for line in ended.stderr.splitlines() if line.startswith("  File ")]
    assert frames == [f'  File "{script}", line 6, in <module>', f'  File "{script}", line 5, in loss']
    assert ended.stderr.rstrip().endswith("ValueError: not a number")
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["exit"], result["error"]) == ("raised", "ValueError: not a number")
    assert "gemm" in presim("trace", tmp_path / "t").stdout


@pytest.mark.parametrize(
    ("last", "ending", "error"),
    [
        ("sys.exit(3)", "exited", "the script exited with 3"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGKILL)",
            "killed",
            "the script's process ended with SIGKILL, which the kernel sends when this machine runs out of memory",
            marks=pytest.mark.long,
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed", "the script's process ended with SIGSEGV"),
    ],
)
def test_the_trace_is_kept_however_a_script_ends(last: str, ending: str, error: str, tmp_path: Path) -> None:
    ended = presim("run", *ONE, "--json", "-", write(tmp_path, f"{WORK}{last}\n"))
    result = json.loads(ended.stdout)
    assert (ended.returncode, result["exit"], result["error"]) == (ExitCode.SCRIPT_FAILED, ending, error)
    assert [operator["name"] for operator in result["operators"]].count("aten::mm") == 1
    assert error in sentence(ended.stderr)


def test_a_script_that_only_allocates_gets_the_amount_in_the_message(tmp_path: Path) -> None:
    script = write(tmp_path, "import torch\nx = torch.empty(30 << 20, dtype=torch.uint8, device='cuda')\n")
    ended = presim("run", *ONE, script)
    assert ended.returncode == ExitCode.UNUSABLE
    assert sentence(ended.stderr) == (
        f"presim: {script} allocated 30.0 MiB on the GPU in 1 block but launched no work, so there is no step "
        "to time: check that it calls its model"
    )


def test_a_script_that_exits_at_once_gives_one_sentence_and_no_report(tmp_path: Path) -> None:
    """It mentions presim's options after the script, which are passed to the script."""
    script = write(tmp_path, "import argparse\nargparse.ArgumentParser().parse_args()\n")
    ended = presim("run", *ONE, script, "--steps", "5")
    assert (ended.returncode, ended.stdout) == (ExitCode.SCRIPT_FAILED, "")
    assert sentence(ended.stderr) == (
        "presim: the script exited with 2; it ran no GPU work. Were --steps meant for presim? Its "
        "options come before the script"
    )


def test_a_successful_script_exits_with_zero(tmp_path: Path) -> None:
    for last in ("sys.exit()", "sys.exit(0)", "os._exit(0)"):
        assert presim("run", *ONE, "-q", write(tmp_path, f"{WORK}{last}\n")).returncode == 0


def test_a_script_without_cuda_is_reported(tmp_path: Path) -> None:
    ended = presim("run", *ONE, write(tmp_path, "print('hello')\n"))
    assert (ended.returncode, ended.stdout) == (2, "hello\n")
    assert "ended without using the GPU" in sentence(ended.stderr)


def test_a_script_without_optimizer_steps_is_one_step(tmp_path: Path) -> None:
    ended = presim("run", *ONE, "--json", "-", write(tmp_path, WORK))
    result = json.loads(ended.stdout)
    assert ended.returncode == 0
    assert result["step_time_s"] > 0
    assert any("called no optimizer step" in note for note in result["notes"])


@pytest.mark.long
def test_a_script_beyond_the_limit_is_ended_with_its_line(tmp_path: Path) -> None:
    """The message has the limit, the line and the option to raise it; no process is left."""
    script = write(tmp_path, "import torch\nx = torch.zeros(1, device='cuda')\nwhile x.item() < 1:\n    x += 1e-9\n")
    for limit in (6, 60):  # a machine that is busy imports PyTorch for longer than the first
        ended = presim("run", *ONE, "--limit", str(limit), script, TMPDIR=str(tmp_path))
        assert ended.returncode == 2
        said = sentence(ended.stderr)
        assert f"had not ended after {limit} s" in said
        if f"is at {script}:" in said:
            break
    assert any(f"is at {script}:{line}" in said for line in (3, 4)), said
    assert "--limit SECONDS" in said
    assert processes_of(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("__version__ = '2.14.0+cpu'\ncuda: Optional[str] = None\n", "is a CPU-only build"),
        ("__version__ = '2.14.0+cu126'\ncuda: Optional[str] = '12.6'\n", "is built for CUDA 12.6"),
        ("__version__ = '2.9.1+cu130'\ncuda: Optional[str] = '13.0'\n", "outside the supported versions 2.11 to 2.15"),
    ],
)
def test_an_unsupported_pytorch_is_named_with_the_fix(version: str, says: str, tmp_path: Path) -> None:
    """Checked without importing it."""
    (tmp_path / "torch").mkdir()
    write(tmp_path / "torch", "raise AssertionError('imported')\n", "__init__.py")
    write(tmp_path / "torch", version, "version.py")
    script = write(tmp_path, "print('ran')\n")
    ended = presim("run", *ONE, script, PYTHONPATH=f"{tmp_path}:{EXAMPLES.parent / 'src'}")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in sentence(ended.stderr)
    assert "pip install --no-deps torch" in sentence(ended.stderr)


def test_an_unreadable_trace_is_refused_with_one_sentence(tmp_path: Path) -> None:
    script = write(tmp_path, WORK)
    presim("run", *ONE, "-q", "--save", tmp_path / "t", script)
    (rank,) = (tmp_path / "t").glob("rank-*")
    rank.write_bytes(rank.read_bytes()[:-100])
    for verb in ("simulate", "trace"):
        ended = presim(verb, tmp_path / "t")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert str(rank) in sentence(ended.stderr)


def test_a_full_disk_is_reported_and_leaves_no_partial_file(tmp_path: Path) -> None:
    """For the log and the result: a file size limit simulates the full disk."""
    script = write(tmp_path, WORK * 40)
    ended = presim("run", *ONE, "-q", "--save", tmp_path / "t", script, limit_kib=4)
    assert ended.returncode == 2
    assert "free some space" in sentence(ended.stderr)
    assert not list((tmp_path / "t").glob("*")) if (tmp_path / "t").exists() else True


BLOCKED = WORK + "print('ready', flush=True)\nwhile True:\n    torch.cuda.synchronize()\n"


@pytest.mark.parametrize("how_often", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ctrl_c_ends_the_script_too(how_often: int, tmp_path: Path) -> None:
    """Pressed once or twice: no process, temporary folder or result is left; exit code 130."""
    script = write(tmp_path, BLOCKED)
    (tmp_path / "tmp").mkdir()
    outputs = ("--json", tmp_path / "r.json", "--save", tmp_path / "t")
    running = start("run", *ONE, *outputs, script, cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    for _ in range(how_often):
        os.kill(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert sentence(errors).startswith("presim: interrupted; the capture is lost")
    assert processes_of(str(tmp_path)) == []
    assert {path.name for path in tmp_path.iterdir()} == {"script.py", "tmp"}
    assert not [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("presim-")]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
def test_an_ended_explanation_ends_its_capture(number: signal.Signals, tmp_path: Path) -> None:
    """It leaves no process or temporary file; after Ctrl-C what was finished, with exit code 130."""
    job_store.save([workloads.llama_8b(steps=2, layers=2)], tmp_path / "job")
    os.mkfifo(tmp_path / "ready")
    (tmp_path / "tmp").mkdir()
    script = write(tmp_path, WORK + "open('ready', 'w').close()\nwhile True:\n    torch.cuda.synchronize()\n")
    words = ("explain", tmp_path / "job", "--json", tmp_path / "e.json", "--study", tmp_path / "s.json")
    running = start(*words, "--vary", "x=1,2", "--", script, "{x}", cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"))
    with open(tmp_path / "ready") as ready:  # until the script has opened it, too
        ready.read()
    os.kill(running.pid, number)
    _, errors = running.communicate(timeout=60)
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert sentence(errors) == "presim: interrupted; what was finished is reported as partial"
        assert not list((tmp_path / "tmp").glob("presim-*"))
    for process in processes_of(str(tmp_path)):
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(process)], [], [], 60)
    assert processes_of(str(tmp_path)) == []
    partial_answers = {"e.json"} if number == signal.SIGINT else set()
    assert {path.name for path in tmp_path.iterdir()} == {"script.py", "tmp", "job", "ready"} | partial_answers


@pytest.mark.long
def test_a_killed_launcher_ends_its_script(tmp_path: Path) -> None:
    """Its standard output closes only when the last process has ended."""
    running = start("run", *ONE, write(tmp_path, BLOCKED), cwd=tmp_path, TMPDIR=str(tmp_path))
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.kill()
    running.communicate(timeout=60)
    assert processes_of(str(tmp_path)) == []


def test_a_missing_package_ends_with_what_to_install(tmp_path: Path) -> None:
    script = write(tmp_path, WORK + "import no_such_framework\n")
    ended = presim("run", *ONE, "--json", tmp_path / "r.json", script)
    assert ended.returncode == ExitCode.SCRIPT_FAILED
    error = json.loads((tmp_path / "r.json").read_text())["error"]
    assert error.startswith("ModuleNotFoundError: No module named 'no_such_framework': `")
    assert "-m pip install no_such_framework`" in error


def test_untested_versions_and_unsupported_extensions_are_named_in_notes(tmp_path: Path) -> None:
    """A framework of another version, and an extension that contains its own CUDA runtime."""
    compiler = find_compiler()
    assert compiler is not None
    (tmp_path / "peft.py").write_text("__version__ = '9.9.0'\n")
    source = '__attribute__((section(".nv_fatbin"), used)) static char code[] = "…";'
    (tmp_path / "fast.cpp").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "fast.so", tmp_path / "fast.cpp"], check=True)
    script = write(tmp_path, WORK + f"import ctypes, peft\nctypes.CDLL({str(tmp_path / 'fast.so')!r})\n")
    ended = presim("run", *ONE, "--json", tmp_path / "r.json", script)
    assert ended.returncode == 0, ended.stderr
    notes = json.loads((tmp_path / "r.json").read_text())["notes"]
    assert [note for note in notes if note.startswith("peft 9.9.0 is not tested with presim (0.21 is)")]
    assert [note for note in notes if note.startswith("Unsupported: fast.so contains its own CUDA runtime")]
