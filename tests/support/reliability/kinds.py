"""Kinds of files that presim reads: a good one of each, and the command that reads it."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from presim.cli import main
from support import nccl_logs, workloads
from support.reliability import kinds_of_runs, samples
from support.reliability.kind import Kind


def _text(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(text)
        return path

    return make


def _job(folder: Path) -> Path:
    from presim.trace import job_store

    job_store.save([workloads.llama_8b(steps=2, layers=2)], folder / "job")
    return folder / "job"


def _manifest(folder: Path) -> Path:
    return _job(folder) / "job.json"


def _rank(folder: Path) -> Path:
    (path,) = _job(folder).glob("rank-*.parquet")
    return path


def _beside_job(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        _job(folder)
        return _text(name, text)(folder)

    return make


def _result(folder: Path) -> Path:
    main.run(["simulate", str(_job(folder)), "--json", str(folder / "result.json"), "-q"])
    return folder / "result.json"


def _profiler_trace(folder: Path) -> Path:
    path = folder / "run.json"
    args = {"External id": 1, "Input Dims": [[512, 512], [512, 512]], "Input type": ["c10::Half"] * 2}
    product = {"cat": "cpu_op", "name": "aten::mm", "args": {**args, "Input Strides": [[512, 1]] * 2}}
    kernel = {"cat": "kernel", "dur": 8.0, "args": {"External id": 1}}
    path.write_text(json.dumps({"deviceProperties": [{"name": "NVIDIA B200"}], "traceEvents": [product, kernel]}))
    return path


def _compressed_trace(folder: Path) -> Path:
    path = folder / "run.json.gz"
    path.write_bytes(gzip.compress(_profiler_trace(folder).read_bytes(), mtime=0))
    return path


def _table(folder: Path) -> Path:
    _job(folder)
    main.run(["profile", "--import", str(_profiler_trace(folder)), "--out", str(folder / "prices"), "-q"])
    (path,) = (path for path in (folder / "prices").rglob("*") if path.suffix == ".parquet")
    return path


def _nccl_log(folder: Path) -> Path:
    from presim.hardware import choose_cluster

    return nccl_logs.write(folder, choose_cluster(gpu="h100-sxm", nodes=1), "all_gather", 8, 1)


def _cluster_of_logs(folder: Path) -> Path:
    main.run(["fit", "--nccl-tests", str(_nccl_log(folder)), "--out", str(folder / "cluster.toml"), "-q"])
    text = (folder / "cluster.toml").read_text()
    (folder / "cluster.toml").write_text(text.replace("nodes = 1\n", "nodes = 16\n"))
    _job(folder)
    return folder / "cluster.toml"


def _graph(folder: Path) -> Path:
    from presim.composition.graph import graph_files
    from support.models import llama

    graph = msgspec.structs.replace(llama(2), model="llama")  # its own name is that of a temporary file
    graph_files.save(graph, folder / "model.graph")
    return folder / "model.graph"


def _plan(folder: Path) -> Path:
    _graph(folder)
    return _text("plan.toml", 'sequence = 512\nmicro_batch = 2\ntensor = 2\ndata_style = "fsdp2"\n')(folder)


def _study(folder: Path) -> Path:
    _graph(folder)
    with contextlib.chdir(folder):
        main.run(f"{_SEARCH} --study study.log -q".split())
    return folder / "study.log"


def _searched(folder: Path) -> Path:
    _graph(folder)
    with contextlib.chdir(folder):
        main.run(f"{_SEARCH} --json study.json -q".split())
    return folder / "study.json"


def _overheads(folder: Path) -> Path:
    (folder / "bench.json").write_text(samples.BENCH)
    words = f"{_CALIBRATE} --from {folder}/bench.json --out {folder}/overheads.json"
    main.run(words.split())
    return folder / "overheads.json"


def _workload(folder: Path) -> Path:
    words = f"serve llama3-8b --gpu h100-sxm --requests 20 --rate 5 --save-workload {folder}/w.jsonl -q"
    main.run(words.split())
    return folder / "w.jsonl"


_SEARCH = "search model.graph --gpu h100-sxm --world-size 8 --seq 256 --tp 1,2 --mbs 1 --global-batch 8 --jobs 1"
_SIMULATE = "simulate job --json ../out/r.json -q"
_SERVE = "serve llama3-8b --gpu h100-sxm --json ../out/r.json"
_CALIBRATE = "calibrate serving llama3-8b --gpu h100-sxm"
_COMPOSE = "compose model.graph --gpu h100-sxm --json ../out/r.json -q"

KINDS = (
    Kind("job", _manifest, _SIMULATE),
    Kind("rank", _rank, _SIMULATE),
    Kind("shown trace", _rank, "trace job --entries 0:20 --json"),
    Kind("cluster", _beside_job("c.toml", samples.CLUSTER), f"{_SIMULATE} --cluster {{file}}"),
    Kind("fitted cluster", _cluster_of_logs, f"{_SIMULATE} --cluster {{file}}"),
    Kind("network", _text("c.toml", samples.NETWORK), "network {file} --collective all_reduce --plot ../out/n.svg"),
    Kind("gpu", _text("gpu.toml", samples.GPU), "hardware show {file} --json"),
    Kind("node", _beside_job("node.toml", samples.NODE), f"{_SIMULATE} --node {{file}}"),
    Kind("prices", _table, f"{_SIMULATE} --prices prices"),
    Kind("profiler trace", _profiler_trace, "profile --import {file} --out ../out/prices -q"),
    Kind("compressed trace", _compressed_trace, "profile --import {file} --out ../out/prices -q"),
    Kind("nccl-tests log", _nccl_log, "fit --nccl-tests {file} --out ../out/c.toml -q"),
    Kind("result", _result, "report {file} --html ../out/r.html"),
    Kind("compared result", _result, "compare {file} job --json ../out/r.json -q"),
    Kind("trained result", _result, "training {file} --tokens 1e12 --runs 5 --json ../out/r.json -q"),
    Kind("budgets", _beside_job("budgets.toml", samples.BUDGETS), "gate {file} --junit ../out/j.xml -q"),
    Kind("cases", _beside_job("cases.csv", samples.CASES), "validate {file} --out ../out/p.csv --report ../out/p.md"),
    Kind("topology of ASTRA-sim", _text("t.yml", samples.ASTRA), "network {file} --collective all_gather"),
    Kind("topology of SimAI", _text("simai", samples.SIMAI), "network {file} --collective all_gather"),
    Kind("topology of htsim", _text("t.topo", samples.HTSIM), "network {file} --collective all_gather"),
    Kind("topology of nvidia-smi", _text("smi.txt", samples.SMI), "network {file} --collective all_gather"),
    Kind("topology of NCCL", _text("t.xml", samples.NCCL), "network {file} --collective all_gather"),
    Kind("Azure's trace", _text("t.csv", samples.AZURE), f"{_SERVE} --trace {{file}}"),
    Kind("BurstGPT's trace", _text("t.csv", samples.BURST), f"{_SERVE} --trace {{file}}"),
    Kind("Mooncake's trace", _text("t.jsonl", samples.MOONCAKE), f"{_SERVE} --trace {{file}}"),
    Kind("ShareGPT", _text("t.json", samples.SHAREGPT), f"{_SERVE} --trace {{file}}"),
    Kind("workload", _workload, f"{_SERVE} --workload {{file}}"),
    Kind(
        "served config", _text("config.json", samples.CONFIG), _SERVE.replace("llama3-8b", "{file}") + " --requests 20"
    ),
    Kind("benchmark", _text("bench.json", samples.BENCH), f"{_CALIBRATE} --from {{file}} --out ../out/o.json"),
    Kind("overheads", _overheads, f"{_SERVE} --requests 20 --overheads {{file}}"),
    Kind("graph", _graph, "graph show {file} --json", needs_torch=True),
    Kind("composed graph", _graph, f"{_COMPOSE} --world-size 2 --seq 256", needs_torch=True),
    Kind("plan", _plan, f"{_COMPOSE} --world-size 4 --plan {{file}}", needs_torch=True),
    Kind("study", _study, f"{_SEARCH} --study {{file}} --json ../out/r.json -q", needs_torch=True),
    Kind("shown search", _searched, "view {file}", needs_torch=True, call=kinds_of_runs.open_result),
    *kinds_of_runs.KINDS,
)
