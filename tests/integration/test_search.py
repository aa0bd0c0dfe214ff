"""`presim search` over a command: the user's own script is captured for each value, what it refuses is in its words."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from presim.cli.main import run
from presim.errors import ExitCode

pytestmark = [pytest.mark.torch_cuda]
SCRIPT = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
parser.add_argument("--batch", type=int)
given = parser.parse_args()
if given.width % 256:
    raise SystemExit(f"width {given.width} is not a multiple of 256")
model = torch.nn.Linear(given.width, given.width).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.randn(given.batch, given.width, device="cuda")).square().mean().backward()
    optimizer.step()
"""


def test_a_command_is_captured_for_each_value_and_a_second_search_finds_them_kept(tmp_path: Path) -> None:
    script, ledger, answer = tmp_path / "train.py", tmp_path / "ledger.csv", tmp_path / "answer.json"
    script.write_text(SCRIPT)
    words = ["search", "--vary", "width=300,8192", "batch=2048", "--gpu", "h100-sxm", "--quiet", "--jobs", "1"]
    words += ["--study", str(tmp_path / "study"), "--csv", str(ledger), "--json", str(answer)]
    words += ["--", "python", str(script), "--width", "{width}", "--batch={batch}"]
    assert run(words) == ExitCode.STANDS
    first, second = csv.DictReader(ledger.read_text().splitlines())
    assert (first["fate"], first["width"], first["source"]) == ("priced", "8192", "captured")
    assert (second["fate"], second["words"]) == (
        "failed",
        "the script exited with 'width 300 is not a multiple of 256'",
    )
    before = json.loads(answer.read_text())
    script.write_text("raise SystemExit('nobody runs me again')")
    assert run(words) == ExitCode.STANDS
    assert json.loads(answer.read_text()) == before


@pytest.mark.long
def test_composed_plans_are_confirmed_by_the_user_s_own_command(tmp_path: Path) -> None:
    config, script, answer = tmp_path / "config.json", tmp_path / "train.py", tmp_path / "answer.json"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 128}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", **sizes}))
    script.write_text(SCRIPT)
    words = ["search", str(config), "--gpu", "h100-sxm", "--world-size", "1", "--seq", "128", "--mbs", "1,2"]
    words += ["--dp-style", "fsdp2", "--recompute", "none", "--reshard", "true", "--shard", "0", "--prune", "none"]
    words += ["--confirm", "2", "--quiet", "--jobs", "1", "--json", str(answer)]
    assert run([*words, "--", "python", str(script), "--width", "256", "--batch={mbs}"]) == ExitCode.STANDS
    confirmation = json.loads(answer.read_text())["confirmation"]
    assert [one["framework"] for one in confirmation["trials"]] == ["command", "command"]
    assert sorted(confirmation["order"]) == sorted(one["number"] for one in confirmation["trials"])
    assert confirmation["regret"] >= 0
