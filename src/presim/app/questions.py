"""What people ask in the app: each question is a verb of the command line, with the options that matter first."""

from __future__ import annotations

import dataclasses

from presim.errors import InputError


@dataclasses.dataclass(frozen=True)
class Change:
    """A control of a what-if: it sets one option of the base's command."""

    field: str
    label: str
    words: tuple[str, ...] = ()  # of a list to choose from; empty: the option's own choices
    factors: tuple[float, ...] = ()  # of a slider: the base's number times each
    pattern: str = "%"  # the option's value for a word; % is the word
    note: str = ""  # what the words are, beside the label


@dataclasses.dataclass(frozen=True)
class FormQuestion:
    """A question, its form and its what-if controls."""

    name: str  # the verb
    title: str
    summary: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]  # heading -> options shown first
    start: tuple[tuple[str, str], ...] = ()  # values of a new form
    changes: tuple[Change, ...] = ()
    what_if: tuple[tuple[str, str], ...] = ()  # values of every what-if, so that no control starts a capture of minutes
    omitted: tuple[str, ...] = ()  # options that a form does not have: files and folders beside the result, servers
    needs: tuple[str, ...] = ()  # options without which the verb refuses, although click does not
    hints: tuple[tuple[str, str], ...] = ()  # help of arguments, which the command line describes in its text


_SHARES = tuple(f"{share:g}" for share in (0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 4))
_DEGREES = ("1", "2", "4", "8", "16", "32")
_BATCHES = tuple(str(2**power) for power in range(3, 13))
_GPUS = ("a100-80gb-sxm", "h100-sxm", "h200", "b200", "b300", "mi300x")
_OUTPUT_FILES = ("html", "perfetto", "memory_snapshot", "chakra", "kineto", "tokens", "price_per_gpu_hour")

QUESTIONS = (
    FormQuestion(
        "compose",
        "Predict a plan",
        "Step time, memory and bottlenecks of a training job, from a model and a parallelism plan.",
        (
            ("Model", ("model",)),
            ("Cluster", ("gpu", "nodes", "gpus_per_node")),
            ("Batch", ("sequence", "micro_batch", "global_batch")),
            ("Parallelism", ("tensor", "pipeline", "context", "expert", "data_style")),
            ("Memory", ("recompute", "optimizer")),
        ),
        (("model", "llama3-8b"), ("gpu", "h100-sxm"), ("nodes", "2"), ("gpus_per_node", "8"), ("sequence", "4096")),
        (
            Change("gpu", "GPU", _GPUS),
            Change("bandwidth", "Bandwidth between nodes", _SHARES, pattern="inter=%", note="times the cluster's"),
            Change("stragglers", "Speed of node 0", _SHARES[1:6], pattern="node0=%", note="1: as the others"),
            Change("micro_batch", "Micro-batch", _DEGREES),
            Change("global_batch", "Global batch", _BATCHES, note="samples of a step"),
            Change("recompute", "Recomputation"),
            Change("tensor", "Tensor parallelism", _DEGREES[:4]),
            Change("pipeline", "Pipeline parallelism", _DEGREES[:5]),
            Change("data_style", "Data-parallel style"),
        ),
        (("framework", "eager"),),
        ("like", "folder", "framework_args", "precision", *_OUTPUT_FILES),
        ("model", "gpu", "sequence"),
        (("model", "Model: a known name, a Hugging Face id in the local cache, or a file of the folder."),),
    ),
    FormQuestion(
        "serve",
        "Serve a load",
        "Latency, throughput and memory of a served model under a load of requests.",
        (
            ("Model", ("model", "weights", "cache")),
            ("Engines", ("gpu", "tp", "ep", "replicas")),
            ("Load", ("rate", "requests", "prompt", "output")),
            ("Goal", ("slo", "price_per_gpu_hour")),
        ),
        (("model", "llama3-8b"), ("gpu", "h100-sxm"), ("rate", "8")),
        (
            Change("gpu", "GPU", _GPUS),
            Change("rate", "Requests per second", factors=(0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4)),
            Change("replicas", "Replicas", ("1", "2", "3", "4", "6", "8")),
            Change("tp", "Tensor parallelism", _DEGREES[:4]),
            Change("weights", "Weights"),
            Change("cache", "KV cache"),
            Change("price_per_gpu_hour", "Price per GPU hour", ("1", "2", "3", "4", "6", "8")),
        ),
        omitted=("html", "perfetto", "listen", "speed", "engine", "detailed", "save_workload"),
        hints=(("model", "Model: a known name, a Hugging Face id in the local cache, or a config of the folder."),),
    ),
    FormQuestion(
        "search",
        "Find the best plan",
        "The fastest plan of a model that fits, among the values that you allow; every plan is predicted.",
        (
            ("Model", ("words",)),
            ("Cluster", ("gpu", "nodes", "gpus_per_node")),
            ("Batch", ("sequence", "micro_batch", "global_batch")),
            ("Plans to try", ("tensor", "pipeline", "expert", "data_style", "recompute")),
            ("Goal", ("objective", "spare_gib", "budget")),
        ),
        (
            ("words", "llama3-8b"),
            ("gpu", "h100-sxm"),
            ("nodes", "2"),
            ("gpus_per_node", "8"),
            ("sequence", "4096"),
            ("tensor", "1,2,4"),
            ("micro_batch", "1,2"),
        ),
        omitted=("csv_file", "html", "folder", "study", "ray", "confirm", "framework", "space"),
        needs=("words", "gpu", "sequence"),
        hints=(("words", "Model: a known name, a Hugging Face id in the local cache, or a file of the folder."),),
    ),
    FormQuestion(
        "deploy",
        "Size a deployment",
        "The plan with the most throughput per GPU within your latency limits, simulated request by request.",
        (
            ("Model", ("model",)),
            ("Cluster", ("gpus", "max_gpus")),
            ("Load", ("prompt", "output")),
            ("Goal", ("slo", "gpu_prices")),
        ),
        (("model", "llama3-8b"), ("gpus", "h100-sxm"), ("max_gpus", "4"), ("slo", "ttft:1000 tpot:50")),
        omitted=("csv_file", "html", "folder"),
        hints=(("model", "Model: a known name, a Hugging Face id in the local cache, or a config of the folder."),),
    ),
    FormQuestion(
        "rl",
        "Plan an RL step",
        "Rollouts, log-probabilities, update and weight sync of reinforcement learning, on shared or separate GPUs.",
        (
            ("Model", ("words",)),
            ("Cluster", ("gpu", "nodes", "gpus_per_node")),
            ("Batch", ("prompts", "samples", "prompt_tokens", "response")),
            ("Placement", ("placement", "rollout_gpus", "staleness", "engine_tp")),
            ("Trainer", ("tp", "pp", "dp_style")),
        ),
        (
            ("words", "qwen3-8b"),
            ("gpu", "h100-sxm"),
            ("nodes", "2"),
            ("gpus_per_node", "8"),
            ("prompts", "64"),
            ("response", "lognormal:mean=2000,p99=6000,max=8192"),
        ),
        (
            Change("gpu", "GPU", _GPUS),
            Change("prompts", "Prompts of a step", factors=(0.25, 0.5, 1, 2, 4)),
            Change("placement", "Placement"),
            Change("engine_tp", "Tensor parallelism of engines", _DEGREES[:4]),
            Change("tp", "Tensor parallelism of the trainer", _DEGREES[:4]),
        ),
        omitted=("html",),
        needs=("words", "gpu", "response"),
        hints=(("words", "Model: a known name, or a Hugging Face id in the local cache."),),
    ),
    FormQuestion(
        "training",
        "Plan a whole training",
        "Days, GPU hours, energy and price of training on a number of tokens, with failures and checkpoints.",
        (
            ("Step", ("job",)),
            ("Work", ("tokens",)),
            ("Prices", ("price_per_gpu_hour", "price_per_kwh")),
            ("Failures", ("failures", "mtbf_hours", "checkpoint_s", "spares", "elastic")),
        ),
        (("tokens", "1e12"),),
        omitted=("html",),
        hints=(("job", "Result or saved job: a predicted plan of the folder, e.g. compose-1.json."),),
    ),
    FormQuestion(
        "simulate",
        "Simulate a saved job",
        "A captured, imported or composed job on this or other hardware, with what-if changes.",
        (
            ("Job", ("directory",)),
            ("Cluster", ("gpu", "nodes", "gpus_per_node")),
            ("What if", ("bandwidth", "stragglers", "scale_op")),
        ),
        changes=(
            Change("gpu", "GPU", _GPUS),
            Change("bandwidth", "Bandwidth between nodes", _SHARES, pattern="inter=%", note="times the cluster's"),
            Change("stragglers", "Speed of node 0", _SHARES[1:6], pattern="node0=%", note="1: as the others"),
        ),
        omitted=_OUTPUT_FILES,
        hints=(("directory", "Saved job: a folder that presim run, import or compose wrote with --save or --out."),),
    ),
    FormQuestion(
        "import",
        "Import a profile",
        "A job from the files of PyTorch's profiler, one for each rank: its limits, and what-if changes.",
        (
            ("Profile", ("files", "out", "step", "missing")),
            ("Cluster", ("gpu", "nodes", "gpus_per_node")),
        ),
        (("out", "imported"),),
        omitted=_OUTPUT_FILES,
        hints=(("files", "Files: names in the folder (add them there first), with blanks between."),),
    ),
)

# Only of an app that was started with --allow-scripts.
SCRIPT_QUESTION = FormQuestion(
    "run",
    "Capture a script",
    "A training script or launch command of yours, run on emulated GPUs: step time, memory and bottlenecks.",
    (
        ("Script", ("script", "args")),
        ("Cluster", ("gpu", "nodes", "gpus_per_node")),
        ("Capture", ("steps", "limit", "save", "values")),
    ),
    (("gpu", "h100-sxm"), ("nodes", "1"), ("gpus_per_node", "8")),
    omitted=(*_OUTPUT_FILES, "profile_missing", "rank"),
    needs=("gpu",),
    hints=(
        ("script", "Script: a file of the folder, or a launcher such as torchrun."),
        ("args", "Arguments: what follows the script, or the launcher's options and the script."),
    ),
)


def question(name: str) -> FormQuestion:
    """A question by name.

    Raises:
        InputError: there is none.
    """
    for candidate in (*QUESTIONS, SCRIPT_QUESTION):
        if candidate.name == name:
            return candidate
    raise InputError(f"no question {name[:40]!r}; there are {', '.join(candidate.name for candidate in QUESTIONS)}")
