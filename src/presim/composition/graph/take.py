"""Obtain graphs of models by running the exporter in a separate process, so that this process never imports torch."""

from __future__ import annotations

import difflib
import functools
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Collection
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec
import platformdirs

from presim.capture.setup.environment import find_torch, install_torch
from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.composition.graph import graph_build, graph_files
from presim.composition.graph.graph_schema import VERSION, OperatorGraph
from presim.composition.graph.recording import Recording
from presim.errors import InputError
from presim.system.files import (
    FormatError,
    decode_messagepack,
    decode_settings_json,
    digest_of,
    first_bytes,
    make_folder,
    read_bytes,
    read_text,
    shortened,
    write_file,
)
from presim.system.files.scratch import temporary_folder

DTYPES = ("bfloat16", "float16", "float32")
_LIMIT_S = 300
_VLLM = "vllm:"  # a model of vLLM's, for inference
_TRACER = 5  # version of the exporter, part of the cache key


def open_graph(model: str, dtype: str = "bfloat16") -> OperatorGraph:
    """Open a graph file, or export a model's graph; graphs of config files are cached.

    Raises:
        InputError: it is neither, or the model cannot be traced.
    """
    if os.path.isfile(model) and not model.endswith("config.json") and _is_graph(Path(model)):
        return graph_files.load(model)
    config = config_file(model)
    if config is None:
        return take(model, dtype)
    _check(config)
    torch = find_torch()
    if torch is None and (graph := _packaged_graph(config, dtype)) is not None:
        return msgspec.structs.replace(graph, model=model)
    key = graph_key(config, dtype, torch.version if torch else "")
    packaged_graph = packaged_file(config.stem, key)
    if packaged_graph.is_file():
        return msgspec.structs.replace(graph_files.load(packaged_graph), model=model)
    cached_graph = Path(platformdirs.user_cache_dir("presim")) / "graphs" / key
    if cached_graph.is_file():
        return graph_files.load(cached_graph)
    graph = take(model, dtype)
    make_folder(cached_graph.parent)
    graph_files.save(graph, cached_graph)
    return graph


def graph_key(config: Path, dtype: str, torch_version: str) -> str:
    """Digest of all that a graph depends on."""
    parts = (str(VERSION), str(_TRACER), dtype, torch_version, digest_of(config))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def packaged_file(name: str, key: str) -> Path:
    """Where presim brings the graph of a named model (`presim.composition.graph.package_graphs`), if it does."""
    return Path(str(resources.files("presim.composition.graph").joinpath(f"packaged/{name}.{key[:16]}.graph")))


def _packaged_graph(config: Path, dtype: str) -> OperatorGraph | None:
    """The graph that presim brings of an unchanged config, by whichever PyTorch; None if it brings none."""
    folder = Path(str(resources.files("presim.composition.graph").joinpath("packaged")))
    for path in sorted(folder.glob(f"{config.stem}.*.graph")):
        graph = graph_files.load(path)
        if packaged_file(config.stem, graph_key(config, dtype, graph.versions["torch"])) == path:
            return graph
    return None


def _check(config: Path) -> None:
    """Refuse a config that the exporter could not read, before it starts."""
    advice = "give a model's config.json"
    try:
        content = decode_settings_json(read_bytes(config, advice))
    except FormatError as error:
        raise InputError(f"{config} is not valid JSON ({error}); {advice}") from error
    if not isinstance(content, dict):
        raise InputError(f"{config} is no JSON object; {advice}")


def _is_graph(path: Path) -> bool:
    return b"presim-graph" in first_bytes(path, 1 << 20) or path.suffix != ".json"


def config_file(model: str) -> Path | None:
    """The ``config.json`` of a model: a file, one in a folder, or that of a model id in Hugging Face's local cache.

    Raises:
        InputError: it is a word that can be neither that nor a factory.
    """
    path = Path(model)
    if path.is_file():
        return path
    if model in named_models():
        return Path(str(_models().joinpath(f"{model}.json")))
    if (path / "config.json").is_file():
        return path / "config.json"
    if ":" in model:
        return None
    if path.is_dir():
        raise InputError(
            f"the folder {shortened(model)} has no config.json; put the model's there, or name another folder"
        )
    cached_config = hub_config(model)
    if cached_config is not None:
        return cached_config
    raise InputError(
        f"{shortened(model)} is no model that is known by name{nearest_names(model, named_models())} Give a folder "
        "with config.json, a config file, a graph that `presim graph` wrote, a factory as package.module:function, or "
        "vllm:MODEL; nothing is downloaded. `presim models` lists the names"
    )


def nearest_names(word: str, names: Collection[str]) -> str:
    """A question after the names most like a word, as the end of a sentence; a full stop: none is like it.

    >>> nearest_names("meta-llama/Llama-3-8B", ["gpt3-175b", "llama3-8b"])
    '; did you mean llama3-8b?'
    """
    plain = word.rpartition("/")[2].lower().replace("llama-", "llama")
    matches = difflib.get_close_matches(plain, sorted(names), 3)
    if not matches:
        family = re.match(r"[a-z]+", plain)
        matches = [name for name in sorted(names) if family and name.startswith(family[0])][:3]
    listed = " or ".join(filter(None, (", ".join(matches[:-1]), *matches[-1:])))
    return f"; did you mean {listed}?" if matches else "."


def hub_config(model_id: str) -> Path | None:
    """The newest ``config.json`` of a model id in Hugging Face's local cache; None if there is none."""
    hub = Path(os.environ.get("HF_HUB_CACHE", Path(os.environ.get("HF_HOME", "~/.cache/huggingface")) / "hub"))
    folder = hub.expanduser() / f"models--{model_id.replace('/', '--')}"
    reference = folder / "refs" / "main"
    main = read_text(reference, f"delete {reference}").strip() if reference.is_file() else ""
    snapshots = [folder / "snapshots" / main] if main else sorted(folder.glob("snapshots/*"))
    configs = [snapshot / "config.json" for snapshot in snapshots if (snapshot / "config.json").is_file()]
    return configs[-1] if configs else None


@functools.cache
def named_models() -> tuple[str, ...]:
    """Names of published models; `presim.composition.graph.models` holds their configs, each with its source."""
    return tuple(sorted(file.name.removesuffix(".json") for file in _models().iterdir() if file.name.endswith(".json")))


def _models() -> Traversable:
    return resources.files("presim.composition.graph").joinpath("models")


def take(model: str, dtype: str = "bfloat16") -> OperatorGraph:
    """Trace a model's step of training on tensors without memory.

    Raises:
        InputError: it cannot be traced, with the exporter's reason.
    """
    with temporary_folder("graph") as folder:
        request, out = Path(folder, "request.json"), Path(folder, "recordings")
        write_file(request, msgspec.json.encode({"model": _located(model), "dtype": dtype}))
        ended = run_exporter([sys.executable, "-m", "presim.composition.graph.export", str(request), str(out)])
        if not out.exists():
            raise InputError(_reason(model, ended.stderr))
        recordings = decode_messagepack(read_bytes(out, "export the model again"), list[Recording])
    return verified_graph(model, recordings)


def _located(model: str) -> str:
    """The model with the path of its config, if it has one."""
    name = model.removeprefix(_VLLM)
    if name != model and re.fullmatch(r"[A-Z][A-Za-z0-9]+", name):
        return model  # an architecture
    config = config_file(name)
    return f"{_VLLM if name != model else ''}{config.resolve() if config else name}"


def verified_graph(model: str, recordings: list[Recording]) -> OperatorGraph:
    """The graph of the first recording, after a check that recordings at other sizes give the same graph.

    Raises:
        InputError: a size depends on batch and sequence in another way than the first recording suggests.
    """
    graph, *other_graphs = (graph_build.build(recording) for recording in recordings)
    for other in other_graphs:
        if (other.segments, other.shapes) != (graph.segments, graph.shapes):
            raise InputError(
                f"{model} runs other operators at batch {other.traced['batch']} and sequence "
                f"{other.traced['sequence']} than at {graph.traced['batch']} and {graph.traced['sequence']}: its sizes "
                "are no polynomials of both; capture it with `presim run` instead"
            )
    return msgspec.structs.replace(graph, model=model)


def run_exporter(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a process that has tensors on the meta device; the emulated libraries join its path if PyTorch lacks its own.

    Raises:
        InputError: it takes too long.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)
        if ended.returncode and "cannot open shared object file" in ended.stderr:
            paths = [str(SHIM_DIRECTORY / "lib"), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"the model was not traced within {_LIMIT_S} s; trace one with fewer layers") from error
    return ended


def _reason(model: str, stderr: str) -> str:
    """The exporter's error as one sentence."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if "No module named 'torch'" in last:
        return f"taking a graph needs PyTorch: `{install_torch()}`"
    return f"{model} cannot be traced: {last}; capture it with `presim run` instead, or trace a part of it as a factory"
