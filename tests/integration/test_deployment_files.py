"""Files of `presim deploy --write` against the engines' own argument parsers, and a benchmark sent to its end."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.serving.launching.folder import DeploymentFolder, files, write
from support.deployments import folder, point

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]
SCRIPT = Path(__file__).parent / "scripts" / "vllm_commands.py"
KINDS: dict[str, dict[str, Any]] = {
    "one engine": {"tp": 2, "weights": "fp8", "cache": "fp8"},
    "INT8 cache": {"cache": "int8"},
    "apart": {"replicas": 2, "prefill": 1, "tp": 2},
    "pipeline of two machines": {"tp": 8, "pp": 2},
    "experts of data-parallel ranks": {"word": "qwen3-30b-a3b", "dp": 8, "ep": True},
    "such ranks on two machines": {"word": "qwen3-235b-a22b", "dp": 4, "tp": 4, "ep": True, "weights": "fp8"},
    "own types": {"word": "deepseek-v3", "tp": 8, "gpu": "h200"},
}


def content_of(fields: dict[str, Any]) -> DeploymentFolder:
    return folder(point(**fields), fields.get("word", "llama3-8b"))


def environment() -> dict[str, str]:
    libraries = f"{SHIM_DIRECTORY / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


def commands_of(script: str) -> list[list[str]]:
    """Words of the vLLM commands of a script, as the shell expands them."""
    variables = (
        "NODE_RANK=1 MASTER=10.0.0.1 PORT=8123 URL=http://x TOKENIZER=t; export NODE_RANK MASTER PORT URL TOKENIZER"
    )
    shown = 'vllm() { for word; do printf "%s\\0" "$word"; done; printf "\\n"; }; python3() { :; }'
    text = script.replace("exec vllm", "vllm").replace('cd "$(dirname "$0")"', "")
    done = subprocess.run(["bash", "-c", f"{variables}\n{shown}\n{text}"], capture_output=True, text=True, check=True)
    return [["vllm", *line.split("\0")[:-1]] for line in done.stdout.splitlines() if line]


def test_vllm_takes_each_command() -> None:
    """Servers of each kind of plan and the benchmark, by vLLM's own parsers."""
    contents = [content_of(fields) for fields in KINDS.values()]
    texts = [text for content in contents for name, text in files(content).items() if name in _SCRIPTS]
    commands = [words for text in texts for words in commands_of(text.decode())]
    assert len(commands) == len(texts) == 2 * len(KINDS) + 1
    lines = "\n".join(map(json.dumps, commands))
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], input=lines, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    parsed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    models = {entry["model"] for entry in parsed if entry["model"]}
    assert "deepseek-ai/DeepSeek-V3" in models
    assert len(parsed) == len(commands)


_SCRIPTS = ("engine.sh", "prefill.sh", "decode.sh", "bench.sh")


@pytest.fixture
def rehearsal(tmp_path: Path) -> Iterator[tuple[DeploymentFolder, str]]:
    """A deployment's folder, and the address of simulated engines in its place."""
    content = content_of({"replicas": 2})
    write(content, tmp_path)
    port = "18431"
    run = {**os.environ, "PORT": port, "SLOWER": "4", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    server = subprocess.Popen(["sh", str(tmp_path / "rehearse.sh")], env=run, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    url = f"http://127.0.0.1:{port}"
    try:
        assert any("Simulated engines" in line for line in server.stderr)
        yield content, url
    finally:
        server.terminate()
        server.wait(10)


@pytest.mark.long
def test_the_benchmark_measures_what_is_predicted(rehearsal: tuple[DeploymentFolder, str], tmp_path: Path) -> None:
    """vLLM's bench sends the workload to simulated engines; mean TPOT and E2EL are those predicted, within 2 %."""
    _, url = rehearsal
    tokenizer(tmp_path / "tokenizer")
    programs = tmp_path / "bin"
    programs.mkdir()
    words = f"exec {shlex.quote(sys.executable)} -c 'from vllm.entrypoints.cli.main import main; main()' \"$@\""
    (programs / "vllm").write_text(f"#!/bin/sh\n{words}\n")
    (programs / "vllm").chmod(0o755)
    run = {**environment(), "URL": url, "TOKENIZER": str(tmp_path / "tokenizer"), "SLOWER": "4"}
    run["PATH"] = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(["sh", str(tmp_path / "bench.sh")], env=run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in done.stdout.splitlines() if line.startswith("  ")}
    for name in ("TPOT", "E2EL"):
        measured, predicted = map(float, rows["mean", name])
        assert measured == pytest.approx(predicted, rel=0.02, abs=0.1)


def tokenizer(directory: Path) -> None:
    """A tokenizer of a few words: the benchmark sends tokens of its vocabulary."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(100)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(str(directory))
