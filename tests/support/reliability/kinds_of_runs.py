"""Kinds of files that come from runs and launchers: profiles, execution traces, logs, space files, results."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import presim.cost.learned
from presim.cli import main
from support import profiles, workloads
from support.reliability import samples
from support.reliability.kind import Kind


def _job(folder: Path) -> Path:
    from presim.trace import job_store

    job_store.save([workloads.llama_8b(steps=2, layers=2)], folder / "job")
    return folder / "job"


def _text(name: str, text: str, beside: Callable[[Path], Path] | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if beside is not None:
            beside(folder)
        (folder / name).write_text(text)
        return folder / name

    return make


def _profile(folder: Path) -> Path:
    """As PyTorch writes it, of the first of two ranks."""
    path = profiles.exported(folder, profiles.simulated())[0]
    return profiles.as_pytorch(path)


def _compressed_profile(folder: Path) -> Path:
    path = _profile(folder)
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return packed


def _profile_and_job(folder: Path) -> Path:
    from presim.trace import job_store

    job_store.save([profiles.program(0), profiles.program(1)], folder / "job")
    path = _profile(folder)
    body = json.loads(path.read_text())
    sizes = {"Total Allocated": 1 << 30, "Total Reserved": 1 << 31, "Bytes": 512, "Device Id": 0, "Device Type": 1}
    body["traceEvents"].insert(0, {"ph": "i", "name": "[memory]", "ts": 1.0, "args": sizes})  # profile_memory=True
    path.write_text(json.dumps(body))
    return path


def _chakra(folder: Path) -> Path:
    from presim.trace import job_store

    job_store.save([profiles.program(0), profiles.program(1)], folder / "saved")
    main.run(["simulate", str(folder / "saved"), "--chakra", str(folder / "traces"), "-q"])
    shutil.rmtree(folder / "saved")
    return next((folder / "traces").glob("*.0.et"))


def _chakra_groups(folder: Path) -> Path:
    _chakra(folder)
    return next((folder / "traces").glob("*.groups.json"))


def _learned(folder: Path) -> Path:
    _job(folder)
    (folder / "prices").mkdir()
    models = Path(presim.cost.learned.__file__).with_name("models")
    name = min((path for path in models.glob("*.h100-sxm.json")), key=lambda path: path.stat().st_size).name
    shutil.copy(models / name, folder / "prices" / name)
    return folder / "prices" / name


def _served(folder: Path) -> Path:
    words = f"serve llama3-8b --gpu h100-sxm --requests 20 --rate 5 --json {folder}/load.json -q"
    main.run(words.split())
    return folder / "load.json"


def _open_space(path: Path) -> None:
    """As a search does it, up to the first capture."""
    from presim.evaluation.options import RunOptions
    from presim.planner.of_command import request_for_command
    from presim.planner.search_options import SearchOptions

    settings = SearchOptions(space=str(path), trials=10, sampler="random")
    request = request_for_command(["train.py"], settings, RunOptions(gpu="h100-sxm", world_size=8), {"layers": 32})
    for point in list(request.space)[:200]:
        for rule in request.rules:
            rule.broken(point)


def open_result(path: Path) -> None:
    """As `presim view` opens it."""
    from presim.app.view.opened import open_result

    open_result(path)


def _launched(*words: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        from presim.capture.launchers.launch import Worker
        from presim.capture.launchers.launch_command import read_command

        launch = read_command([str(path) if word == "{file}" else word for word in words])
        launch.variables_for(Worker(rank=0, world_size=16, per_node=8, port=29400))

    return read


_IMPORT = "import {file} --missing same --out ../out/job"
_SIMULATE = "simulate job --json ../out/r.json -q"
_CALIBRATE = "calibrate job {file} --out ../out/c.toml"

KINDS = (
    Kind("PyTorch's profile", _profile, _IMPORT),
    Kind("compressed profile", _compressed_profile, _IMPORT),
    Kind("Chakra's trace", _chakra, _IMPORT),
    Kind("groups beside Chakra's", _chakra_groups, "import traces --out ../out/job"),
    Kind("profile to calibrate by", _profile_and_job, f"{_CALIBRATE} --missing same --trace job"),
    Kind("log of step times", _text("run.log", samples.LOG, _job), f"{_CALIBRATE} --trace job"),
    Kind("mixed cluster", _text("c.toml", samples.MIXED, _job), f"{_SIMULATE} --cluster {{file}}"),
    Kind("learned model", _learned, f"{_SIMULATE} --prices prices"),
    Kind("LLMServingSim's trace", _text("t.jsonl", samples.LLMSERVINGSIM),
         "serve llama3-8b --gpu h100-sxm --json ../out/r.json --trace {file}"),
    Kind("space", _text("s.toml", samples.SPACE), "search --space {file}", call=_open_space),
    Kind("shown load", _served, "view {file}", call=open_result),
    Kind("accelerate's config", _text("a.yaml", samples.ACCELERATE), "run accelerate launch",
         call=_launched("accelerate", "launch", "--config_file", "{file}", "train.py")),
    Kind("hostfile", _text("hosts", samples.HOSTS), "run deepspeed",
         call=_launched("deepspeed", "--hostfile", "{file}", "train.py")),
)  # fmt: skip
