"""Wrong command lines: good ones with a word dropped, doubled, misspelt, or given another value."""

from __future__ import annotations

import random
from pathlib import Path

from support import workloads
from support.reliability import samples

# None of them runs a script or starts a server, however it is changed: what they would run is not there.
GOOD = (
    "run --gpu h100-sxm --world-size 8 --steps 2 --json r.json missing.py --lr 1",
    "run --gpu h100-sxm --nodes 2 torchrun --nproc-per-node 8 missing.py",
    "simulate job --gpu b200 --json r.json --bandwidth inter=2 --straggler node0=0.8 -q",
    "simulate job --cluster c.toml --host-factor 1.5 --scale-op gemm=0.5 --html r.html -q",
    "trace job --entries 0:10 --rank 0",
    "compare job job --with --gpu=b200 --json r.json -q",
    "explain job --gpu b200 --json r.json",
    "training job --tokens 1e12 --mtbf 100 --checkpoint 30 --runs 3 --json r.json -q",
    "gate budgets.toml --junit j.xml --markdown m.md -q",
    "report r0.json --html r.html",
    "graph show missing.graph --json",
    "compose missing.graph --gpu h100-sxm --world-size 8 --seq 1024 --tp 2 --json r.json",
    "search missing.graph --gpu h100-sxm --world-size 8 --vary tp=1,2 --seq 1024 --budget 10s --json r.json",
    "serve llama3-8b --gpu h100-sxm --tp 2 --rate 5 --requests 20 --slo ttft:500 --json r.json",
    "serve llama3-8b --gpu h100-sxm --input 100~0.5 --output 20 --concurrency 4 --requests 20 --replicas 2 -q",
    "deploy llama3-8b --gpu h100-sxm --max-gpus 1 --input 128 --output 16 --slo tpot:100 --json d.json",
    "calibrate serving llama3-8b --gpu h100-sxm --from bench.json --out o.json",
    "fit --nccl-tests missing.log --out c2.toml",
    "profile --import missing.json --out prices",
    "network c.toml --collective all_reduce --bytes 64MiB --ranks 0-15 --plot n.svg",
    "hardware show h100-sxm --json",
    "validate cases.csv --out p.csv --report p.md --jobs 1 --limit 1",
)
_VALUES = (
    "-1",
    "0",
    "1.5",
    "nan",
    "inf",
    "1e400",
    "",
    " ",
    "x",
    "=",
    "a=b",
    "../..",
    "/",
    ".",
    "job",
    "\udcff",
    "ü",
    "9" * 30,
)


def prepare(folder: Path) -> None:
    """The files that the good lines name."""
    from presim.cli import main
    from presim.trace import job_store

    job_store.save([workloads.llama_8b(steps=2, layers=2)], folder / "job")
    main.run(["simulate", str(folder / "job"), "--json", str(folder / "r0.json"), "-q"])
    (folder / "c.toml").write_text(samples.CLUSTER)
    (folder / "budgets.toml").write_text(samples.BUDGETS)
    (folder / "bench.json").write_text(samples.BENCH)
    (folder / "cases.csv").write_text(samples.CASES)


def wrong(number: int) -> list[str]:
    """The line of a number: always the same."""
    chance = random.Random(number)
    words = GOOD[number % len(GOOD)].split()
    for _ in range(chance.choice([1, 1, 2])):
        words = _changed(words, chance)
    return words


def _changed(words: list[str], chance: random.Random) -> list[str]:
    at = chance.randrange(len(words))
    how = chance.randrange(6)
    if how == 0:
        return words[:at] + words[at + 1 :]
    if how == 1:
        return [*words[: at + 1], *words[at:]]
    if how == 2 and len(words[at]) > 2:
        letter = chance.randrange(1, len(words[at]))
        return [*words[:at], words[at][:letter] + words[at][letter + 1 :], *words[at + 1 :]]
    if how == 3:
        return [*words[:at], chance.choice(["--no-such-option", "--json", "-x", "--", "-"]), *words[at:]]
    if how == 4:
        other = chance.randrange(len(words))
        words = list(words)
        words[at], words[other] = words[other], words[at]
        return words
    return [*words[:at], chance.choice(_VALUES), *words[at + 1 :]]
