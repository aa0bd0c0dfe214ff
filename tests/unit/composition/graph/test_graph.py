"""Operator graphs of a small Llama: what is kept, what passes conserve, what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from presim import hardware
from presim.cli import main
from presim.composition.compose import compose
from presim.composition.graph import graph_files, graph_summary
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.passes import attention_backend, tensor_parallel
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.schema import Trace
from presim.trace.signatures import Attention, Gemm, Signature
from presim.trace.trace_invariants import check
from support.models import LLAMA, llama

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=2)


def step(trace: Trace) -> Counter[Signature]:
    """Work of the last step."""
    chosen = trace.columns["signature"][trace.steps()[-1]]
    return Counter(trace.signatures[index] for index in chosen[chosen >= 0].tolist())


def flops(graph: OperatorGraph, plan: Plan) -> int:
    (trace,) = compose(graph, plan, CLUSTER).traces
    return sum(one.flops * times for one, times in step(trace).items() if isinstance(one, (Gemm, Attention)))


def test_equal_blocks_are_kept_once() -> None:
    few, many = llama(4), llama(12)
    for graph, count in ((few, 4), (many, 12)):
        assert [segment.count for segment in graph.segments if segment.name] == [count, count]
    assert [segment.nodes for segment in few.segments] == [segment.nodes for segment in many.segments]


def test_parameters_are_the_model_s() -> None:
    hidden, inner, words, heads = LLAMA["hidden_size"], LLAMA["intermediate_size"], LLAMA["vocab_size"], 12
    assert isinstance(hidden, int)
    assert isinstance(inner, int)
    assert isinstance(words, int)
    block = 2 * hidden * hidden + 2 * hidden * hidden // 2 + 3 * hidden * inner + 2 * hidden
    assert llama(heads).parameter_count() == heads * block + 2 * words * hidden + hidden


def test_a_graph_is_read_as_it_was_written_and_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "llama.graph"
    graph_files.save(llama(), path)
    assert graph_files.load(path) == llama()
    load = f"from presim.composition.graph import graph_files; graph_files.load({str(path)!r})"
    code = f"import sys; {load}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "is not a graph of presim's"), (b"{}", "is not a graph"), (b'{"magic": "x", "version": 1}', "magic 'x'")],
)
def test_what_is_no_graph_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        graph_files.load(path)


def test_forward_and_backward_have_the_flops_of_the_model() -> None:
    """Twice the forward in backward; two thirds of products are those of weights."""
    modules = {one.name: one for one in graph_summary.by_module(llama(), 2, 512)}
    mlp = modules["model.layers.*.mlp"]
    assert mlp.flops == 3 * 2 * 2 * 512 * 3 * 256 * 512


def test_a_block_is_drawn_with_each_of_its_modules(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    graph_files.save(llama(), tmp_path / "g")
    assert main.run(["graph", "show", str(tmp_path / "g"), "--plot", str(tmp_path / "block.svg")]) == 0
    words = [one.text for one in ElementTree.parse(tmp_path / "block.svg").iter() if one.tag.endswith("text")]
    assert {"input_layernorm", "self_attn.q_proj", "self_attn", "mlp.down_proj"} <= set(words)
    assert f"{2 * 4096 * 256 * 512 / 1e9:,.1f} GFLOP" in " ".join(word or "" for word in words)


def test_products_grow_with_the_batch_and_the_sequence() -> None:
    """One graph serves all of both; attention grows with the square of the sequence."""
    one, two = (flops(llama(), Plan(sequence=512, micro_batch=batch)) for batch in (1, 2))
    assert two == 2 * one
    assert flops(llama(), Plan(sequence=1024)) > 2 * one


def test_degree_1_is_the_identity_and_degrees_share_the_products() -> None:
    assert tensor_parallel.apply(llama(), 1) == llama()
    whole, half = (flops(llama(), Plan(sequence=512, tensor=degree)) for degree in (1, 2))
    vocabulary = 3 * 2 * 512 * 256 * 1024  # the output layer is not split
    assert half - vocabulary == (whole - vocabulary) // 2


def test_attention_changes_nothing_but_its_backend() -> None:
    other = attention_backend.apply(llama(), "flash")
    assert attention_backend.apply(other, "cudnn") == attention_backend.apply(llama(), "cudnn")
    assert flops(other, Plan(sequence=512)) == flops(llama(), Plan(sequence=512))


def test_recomputation_runs_each_block_s_forward_again() -> None:
    plain, again = (flops(llama(), Plan(sequence=512, recompute=how)) for how in ("none", "full"))
    vocabulary = 3 * 2 * 512 * 256 * 1024
    assert again > plain
    assert again - vocabulary < 1.4 * (plain - vocabulary)


@pytest.mark.parametrize("plan", [Plan(sequence=512), Plan(sequence=512, tensor=2, recompute="full")], ids=str)
def test_a_composed_trace_is_a_valid_one_and_the_same_again(plan: Plan) -> None:
    (trace,), (again,) = (compose(llama(), plan, CLUSTER).traces for _ in range(2))
    check(trace)
    assert all((trace.columns[name] == again.columns[name]).all() for name in trace.columns)
    assert len(trace.steps()) == 2


def test_bad_calls_end_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["compose", "no-such/model", "--gpu", "h100-sxm", "--seq", "512"]) == 2
    assert "no-such/model is no model that is known by name. Give a folder with config.json" in capsys.readouterr().err
    assert main.run(["compose", str(tmp_path), "--gpu", "h100-sxm", "--seq", "512"]) == 2
    assert f"the folder {tmp_path} has no config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"model_type": "not-a-model"}')
    assert main.run(["graph", str(tmp_path), "--out", str(tmp_path / "g")]) == 2
    assert "cannot be traced" in capsys.readouterr().err
    assert not (tmp_path / "g").exists()
