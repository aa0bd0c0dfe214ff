"""Models beyond language models: their published sizes, and PyTorch's own count of their FLOPs."""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from presim.trace.schema import Phase
from presim.trace.signatures import Attention, Convolution, Gemm, Index, Kernel, Normalization
from support.captured import Job, run
from support.long_cases import marked

pytestmark = [
    pytest.mark.torch_cuda,
    pytest.mark.needs("timm", "diffusers", "torch_geometric"),
]

# Parameters: torchvision's table of weights (the first four), the model cards of openai/clip-vit-large-patch14,
# google-t5/t5-large, google-bert/bert-large-uncased (masked language modelling) and stable-diffusion-v1-5.
PARAMETERS = {
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "convnext": 88_591_464,
    "vit": 86_567_656,
    "clip": 427_616_513,
    "t5": 737_668_096,
    "bert": 335_174_458,
    "unet": 859_520_964,
}
MODELS = marked(PARAMETERS, ["resnet152", "vit", "clip", "t5", "bert", "unet"])
# Their matrix products, convolutions and attention, forward and backward, by PyTorch's FlopCounterMode.
# It counts the backward of ConvNeXt's convolutions by channel as if they mixed channels, so that one is done below.
COUNTED = ("resnet50", "vit", "t5", "bert", "unet")


def zoo(model: str, *args: str) -> Job:
    """A model's second step; PyTorch also counts the first step of some models."""
    if model in COUNTED and not args:
        return run("count_flops.py", model, "4", str(counts(model)), steps=2)
    return run("model_zoo.py", model, "--batch", "4", *args, steps=2)


@functools.cache
def counts(model: str) -> Path:
    """The file with PyTorch's counts of a model's first step."""
    return Path(tempfile.mkdtemp(prefix="presim-flops-")) / model


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_its_published_number_of_parameters(model: str) -> None:
    assert zoo(model).trace.manifest.model["parameters"] == PARAMETERS[model]


@pytest.mark.parametrize("model", MODELS)
def test_no_kernel_is_known_by_its_name_only(model: str) -> None:
    job = zoo(model)
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]
    assert not job.result.not_modelled


@pytest.mark.parametrize("model", marked(COUNTED, ["vit", "t5", "bert", "unet"]))
def test_flops_equal_pytorch_s_counts(model: str) -> None:
    """Exactly, in each of the three kinds."""
    job = zoo(model)
    expected = _by_kind(json.loads(counts(model).read_text()))
    found: Counter[str] = Counter()
    for one in job.signatures(job.work()):
        if isinstance(one, (Gemm, Convolution, Attention)):
            found[type(one).__name__] += one.flops
    assert found == expected


def _by_kind(counts: dict[str, int]) -> Counter[str]:
    total: Counter[str] = Counter()
    for operator, flops in counts.items():
        kind = "Attention" if "attention" in operator else "Convolution" if "conv" in operator else "Gemm"
        total[kind] += flops
    return total


def test_convolutions_of_a_resnet_have_three_directions() -> None:
    """Each has a weight gradient, all but the first a data gradient, with equal FLOPs in all three."""
    job = zoo("resnet50")
    flops, calls = Counter[str](), Counter[str]()
    for one in job.signatures(job.work()):
        if isinstance(one, Convolution):
            flops[one.direction] += one.flops
            calls[one.direction] += 1
    stem = 2 * 4 * 112**2 * 64 * 3 * 7**2
    assert calls == {"forward": 53, "backward_weight": 53, "backward_data": 52}
    assert flops["forward"] == flops["backward_weight"] == flops["backward_data"] + stem
    assert flops["forward"] == 2 * 4 * _resnet_products((3, 4, 6, 3))


def _resnet_products(blocks: tuple[int, ...]) -> int:
    """Multiply-adds of the convolutions for one image of 224 x 224 (He et al. 2015, table 1; strides in the 3 x 3)."""
    total, channels, before = 112**2 * 64 * 3 * 7**2, 64, 56
    for stage, count in enumerate(blocks):
        width, size = 64 * 2**stage, 56 // 2**stage
        for block in range(count):
            total += channels * width * (before if block == 0 else size) ** 2
            total += (9 * width * width + 4 * width * width) * size**2
            total += channels * 4 * width * size**2 * (block == 0)
            channels = 4 * width
        before = size
    return total


def test_depthwise_convolutions_count_no_products_between_channels() -> None:
    """ConvNeXt-base: 7 x 7 filters in 3, 3, 27 and 3 blocks (Liu et al. 2022, section 2.7)."""
    job = zoo("convnext")
    convolutions = [one for one in job.signatures(job.work()) if isinstance(one, Convolution)]
    sizes = zip((3, 3, 27, 3), (128, 256, 512, 1024), (56, 28, 14, 7))
    expected = sum(2 * 4 * blocks * 49 * channels * size**2 for blocks, channels, size in sizes)
    for direction in ("forward", "backward_data", "backward_weight"):
        found = [one for one in convolutions if one.direction == direction and one.groups > 1]
        assert sum(one.flops for one in found) == expected


@pytest.mark.parametrize("layout", [(), ("--channels-last",)])
def test_batch_norm_reads_its_input_twice_forward_and_both_tensors_twice_backward(layout: tuple[str, ...]) -> None:
    """In multiples of all normalised bf16 activations: statistics, result; sums, gradient."""
    job = zoo("resnet50", *layout)
    activations = 2 * 4 * _resnet_activations()
    for phase, reads in ((Phase.FORWARD, 2), (Phase.BACKWARD, 4)):
        norms = [one for one in job.signatures(job.work(phase)) if isinstance(one, Normalization)]
        assert sum(one.bytes_read for one in norms) == pytest.approx(reads * activations, rel=0.05), phase
        assert sum(one.bytes_written for one in norms) == pytest.approx(activations, rel=0.05), phase


def _resnet_activations() -> int:
    """Number of outputs of a ResNet-50's convolutions for one image, all of which are normalised."""
    total, before = 112**2 * 64, 56
    for stage, count in enumerate((3, 4, 6, 3)):
        width, size = 64 * 2**stage, 56 // 2**stage
        total += width * (before**2 - size**2) + count * (2 * width + 4 * width) * size**2 + 4 * width * size**2
        before = size
    return total


def test_a_graph_attention_network_gathers_and_scatters_its_edges() -> None:
    """The last layer gathers a row per edge and head and sums them by node, forward and backward."""
    nodes, edges, heads, classes = 10_000, 80_000, 4, 40
    job = run("graph_attention.py", "--nodes", str(nodes), "--edges", str(edges), steps=2)
    assert job.trace.manifest.batch == {"samples": nodes}
    moves = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Index)]
    rows = 4 * heads * classes
    last = {one.operator: one.bytes_written // rows for one in moves if one.bytes_written % rows == 0}
    assert last["aten::gather"] == last["aten::scatter_add_"]
    assert edges < last["aten::gather"] <= edges + nodes  # a loop at each node that had none


def test_a_recommender_looks_up_exchanges_and_scatters_its_bags() -> None:
    """Each table row once; one all-to-all for all vectors, one for their gradients."""
    ranks, tables, dimension, bag, batch = 8, 32, 128, 20, 512
    job = run("recommender.py", "--batch", str(batch), "--rows", "100000", world_size=ranks, steps=2)
    row, own = 4 * dimension, tables // ranks
    indices = ranks * batch * bag
    forward, update = job.signatures(job.work(Phase.FORWARD)), job.signatures(job.work(Phase.OPTIMIZER))
    bags = [one for one in forward if isinstance(one, Index) and one.operator == "aten::_embedding_bag"]
    rows = [one for one in update if isinstance(one, Index) and one.operator == "aten::index_add_"]
    assert [one.bytes_read for one in bags] == [indices * (row + 8)] * own
    assert [one.bytes_written for one in rows] == [indices * row] * own
    exchanged = [one.bytes for one in job.collectives() if one.kind == "all_to_all"]
    assert exchanged == [ranks * batch * own * row] * 2
