"""A small model's step by the graph of a plan on gloo ranks, and by eager PyTorch: ``python -m … FOLDER CASE...``.

Prints, as JSON, for each case the largest difference of the loss and of gradients, relative to the largest gradient;
and what narrow products change in eager's loss.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from presim.composition.graph.graph_schema import Node, OperatorGraph, Parameter
from presim.composition.passes import (
    attention_backend,
    budget,
    compiled_functions,
    context_parallel,
    expert_parallel,
    quantisation,
    registry,
    shared_root,
    sparse_weights,
    tensor_parallel,
    untie,
    weight_only,
    zero_bubble,
)
from presim.composition.runtime import recompute
from presim.composition.schedule import training_step, value_key
from support.executing import fused, narrow, recording
from support.executing.interpreter import Rank, names, part_of

BATCH, SEQUENCE, WORDS = 2, 16, 96
CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": WORDS,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "use_cache": False,
    "attn_implementation": "sdpa",
}
WIDE = {
    **CONFIG,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_key_value_heads": 8,
}  # in bf16, with whole groups and tiles
FUSED = ("fuse-norm", "fuse-rotary", "fuse-activation", "fuse-cross-entropy")
EXPERTS = 4
MIXTURE = {  # each token chooses all experts: sizes do not depend on values
    **CONFIG,
    "head_dim": 8,
    "moe_intermediate_size": 48,
    "num_experts": EXPERTS,
    "num_experts_per_tok": EXPERTS,
    "norm_topk_prob": True,
}
CASES: dict[str, dict[str, Any]] = {
    "one rank": {},
    "tensor": {"tensor": 2},
    "tensor of four": {"tensor": 4},
    "vocabulary": {"tensor": 2, "vocabulary": True},
    "sequence": {"tensor": 2, "sequence": True, "vocabulary": True},
    "sequence, gathered again": {"tensor": 2, "sequence": True, "vocabulary": True, "again": True},
    "context, all-gather": {"context": 2, "style": "all-gather"},
    "context, ulysses": {"context": 2, "style": "ulysses"},
    "context, ring": {"context": 4, "style": "ring"},
    "two parts of the backward pass": {"tensor": 2, "split": True},
    "half of the activations": {"budget": 0.5},
    "no activations": {"tensor": 2, "budget": 0.0},
    "recomputed": {"tensor": 2, "recompute": True},
    "experts, all-to-all": {"experts": 2, "exchange": "all-to-all"},
    "experts, all-gather": {"experts": 2, "exchange": "all-gather"},
    "experts, deepep": {"experts": 2, "exchange": "deepep"},
    "fused modules": {"tensor": 2, "passes": FUSED},
    "fused neighbours": {"tensor": 2, "passes": ("fuse-pointwise",)},
    "fused, then recomputed": {"passes": (*FUSED, "recompute-selective")},
    "selective recomputation": {"tensor": 2, "passes": ("recompute-selective",)},
    "compiled functions": {"compiles": "mlp"},
    "another attention": {"attention": "flash"},
    "untied": {"tied": True},
    **{name: {"passes": (name,), "narrow": name} for name in (*quantisation.FORMATS, sparse_weights.NAME)},
    "sparse24, tensor": {"tensor": 2, "passes": (sparse_weights.NAME,), "narrow": sparse_weights.NAME},
    weight_only.NAME: {"passes": (weight_only.NAME,), "narrow": weight_only.NAME, "inference": True},
}


def kind_of(case: dict[str, Any]) -> str:
    """Which graph a case starts from."""
    if "narrow" in case:
        return "inference" if case.get("inference") else "wide"
    return "mixture" if "experts" in case else "tied" if "tied" in case else "plain"


def model_of(kind: str) -> torch.nn.Module:
    """A Llama, or a mixture of experts."""
    if kind == "mixture":
        return Qwen3MoeForCausalLM(Qwen3MoeConfig(**MIXTURE))
    if kind in ("wide", "inference"):
        return LlamaForCausalLM(LlamaConfig(**WIDE)).to(torch.bfloat16)
    return LlamaForCausalLM(LlamaConfig(**{**CONFIG, "tie_word_embeddings": kind == "tied"}))


def eager(
    case: dict[str, Any], tokens: torch.Tensor, shifted: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor, dict[str, Any]]:
    """Parameters and buffers before the step, loss, and parameters with gradients."""
    torch.manual_seed(1)
    model: Any = model_of(kind_of(case))
    held = {name: one.detach().clone() for name, one in (*model.named_parameters(), *model.named_buffers())}
    if case.get("narrow"):
        narrow.make_eager(model.model.layers, case["narrow"])
    loss = model(input_ids=tokens, labels=tokens, shift_labels=shifted).loss
    if not case.get("inference"):
        loss.backward()
    trained = {} if case.get("inference") else dict(model.named_parameters())
    return held, loss.detach(), trained


def marked(graph: OperatorGraph, module: str) -> OperatorGraph:
    """The graph as the exporter marks it where the forward pass of a module is under ``torch.compile``."""

    def mark(node: Node) -> Node:
        if f".{module}" not in node.scope:
            return node
        return msgspec.structs.replace(node, attributes={**node.attributes, compiled_functions.ATTRIBUTE: module})

    segments = (msgspec.structs.replace(one, nodes=tuple(map(mark, one.nodes))) for one in graph.segments)
    return msgspec.structs.replace(graph, segments=tuple(segments))


def plan_of(graph: OperatorGraph, case: dict[str, Any]) -> OperatorGraph:
    """The graph of one rank."""
    sequence, vocabulary = case.get("sequence", False), case.get("vocabulary", False)
    again = case.get("again", False)
    graph = tensor_parallel.apply(
        graph, case.get("tensor", 1), sequence=sequence, vocabulary=vocabulary, gathers_again=again
    )
    graph = context_parallel.apply(graph, case.get("context", 1), case.get("style", ""))
    if "experts" in case:
        graph = expert_parallel.apply(graph, case["experts"], case["exchange"], batch=1, sequence=SEQUENCE)
    if "attention" in case:
        graph = attention_backend.apply(graph, case["attention"])
    if "compiles" in case:
        graph = compiled_functions.apply(marked(graph, case["compiles"]))
        assert any(node.operator.startswith("fused::") for one in graph.segments for node in one.nodes)
    for name in case.get("passes", ()):
        changed = registry.find(name)(graph)
        assert changed != graph, f"{name} has changed nothing"
        graph = changed
    if "budget" in case:
        graph = budget.apply(graph, case["budget"], lambda node: 1.0, BATCH, SEQUENCE)[0]
    graph = untie.apply(graph) if case.get("tied") else graph
    return zero_bubble.apply(shared_root.apply(graph)) if case.get("split") else graph


def positions_of(case: dict[str, Any], place: int) -> torch.Tensor | None:
    """Of a rank's tokens: from the beginning and the end with all-gather, neighbours with Ulysses."""
    parts = case.get("context", 1)
    if parts == 1:
        return None
    if case["style"] == "ulysses":
        return torch.arange(SEQUENCE).chunk(parts)[place]
    pieces = torch.arange(SEQUENCE).chunk(2 * parts)
    return torch.cat((pieces[place], pieces[2 * parts - 1 - place]))


def execute(
    graph: OperatorGraph, case: dict[str, Any], tokens: torch.Tensor, shifted: torch.Tensor
) -> dict[str, float]:
    """One rank runs the graph; its loss and gradients beside eager ones."""
    whole, loss, trained = eager(case, tokens, shifted)
    unchanged = eager({**case, "narrow": ""}, tokens, shifted)[1] if "narrow" in case else loss
    ranks, place = dist.get_world_size(), dist.get_rank()
    known = names(graph)
    positions = positions_of(case, place)
    own = tokens if positions is None else tokens[:, positions]
    labels = shifted if positions is None else shifted[:, positions]
    if "experts" in case:  # a sample for each rank
        own, labels = (one[place : place + 1].clone() for one in (tokens, shifted))  # storages of their own
    local = SEQUENCE // (ranks if case.get("sequence") or positions is not None else 1)
    inputs = {"input_ids": own, "labels": own}
    rank = Rank(graph, (len(own), local), _parameters(whole, known, place), inputs, labels, positions=positions)
    rank.experts, rank.format = EXPERTS, case.get("narrow", "")
    errors = {
        "gradients": 0.0,
        "missing": 0.0,
        "narrow": float((loss - unchanged).abs() / loss.abs()),
    }
    found = _gradients(rank, graph, bool(case.get("recompute")))
    errors["loss"] = _loss_error(rank, loss, len(own[0]) * len(own) < tokens.numel())
    for name, one in trained.items():
        gradient = found.get(name)
        if gradient is None or one.grad is None:
            errors["missing"] += 1
            continue
        gradient = gradient.clone()
        is_split = "experts" in case and ".experts." in name  # by now the sum over tokens of all ranks
        if (positions is not None or "experts" in case) and not is_split:  # as data parallelism over the ranks does
            dist.all_reduce(gradient)
        gradient = gradient / ranks if positions is not None or "experts" in case else gradient
        expected = part_of(one.grad, known[name].shape, place)
        difference = (gradient.reshape(expected.shape) - expected).abs().max() / one.grad.abs().max()
        errors["gradients"] = max(errors["gradients"], float(difference))
    return errors


def _parameters(whole: dict[str, torch.Tensor], known: dict[str, Parameter], place: int) -> dict[str, torch.Tensor]:
    """This rank's part of each, and what passes have added: copies, 4-bit weights with their factors."""
    own = {name: part_of(one, known[name].shape if name in known else one.shape, place) for name, one in whole.items()}
    own["words"] = torch.empty(WORDS)
    for name in known:
        if name.endswith(untie.COPY):
            own[name] = own[name.removesuffix(untie.COPY)]
        if f"{name}_scales" in known:
            both = (name, f"{name}_scales")
            own |= dict(zip(both, narrow.packed(whole[name])))
            assert [tuple(own[one].shape) for one in both] == [known[one].shape for one in both]
    return own


def _gradients(rank: Rank, graph: OperatorGraph, recomputes: bool) -> dict[str, torch.Tensor]:
    """Run the step; gradients by the parameters' full names."""
    runs: Any = training_step(graph)
    runs = recompute.apply(runs, graph) if recomputes else runs
    with torch.no_grad():
        for run in runs:
            rank.run(run)
    found: dict[str, torch.Tensor] = {}
    for run in runs:
        segment = graph.segments[run.segment]
        for name, index in segment.gradients.items():
            key = value_key(graph, run, index)
            full = f"{segment.name[:-2]}.{segment.first + run.block}{name}" if name[:1] == "." else name
            if key is not None:
                found[full] = rank.storages[key]
    for name in [name for name in found if name.endswith(untie.COPY)]:  # ends of a pipeline add up their gradients
        found[name.removesuffix(untie.COPY)] = found[name.removesuffix(untie.COPY)] + found.pop(name)
    return found


def _loss_error(rank: Rank, loss: torch.Tensor, is_mean: bool) -> float:
    found = rank.loss.clone()
    if is_mean:
        dist.all_reduce(found)
        found /= rank.ranks
    return float((found - loss).abs() / loss.abs())


def work(place: int, ranks: int, folder: str, name: str, graph: OperatorGraph) -> None:
    """What a process does."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/{name.replace(' ', '-')}", rank=place, world_size=ranks
    )
    torch.manual_seed(0)
    tokens = torch.randint(WORDS, (BATCH, SEQUENCE))
    shifted = torch.randint(WORDS, (BATCH, SEQUENCE))
    errors = execute(plan_of(graph, CASES[name]), CASES[name], tokens, shifted)
    worst = torch.tensor(list(errors.values()), dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if place == 0:
        with open(os.path.join(folder, "errors.jsonl"), "a") as file:
            file.write(json.dumps({"case": name, **dict(zip(errors, worst.tolist()))}) + "\n")
    dist.destroy_process_group()


def main(folder: str, *chosen: str) -> None:
    """Run cases one after the other; processes are forks, which know the recording."""
    torch.set_num_threads(1)
    fused.remember()
    graphs: dict[str, OperatorGraph] = {}
    for name in chosen or CASES:
        case = CASES[name]
        kind = kind_of(case)
        if kind not in graphs:
            graphs[kind] = recording.graph_of(lambda kind=kind: model_of(kind), kind != "inference")
        ranks = max(case.get("tensor", 1), case.get("context", 1), case.get("experts", 1))
        mp.start_processes(work, (ranks, folder, name, graphs[kind]), nprocs=ranks, start_method="fork")
    with open(os.path.join(folder, "errors.jsonl")) as file:
        sys.stdout.write(file.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
