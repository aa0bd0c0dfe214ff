"""The built-in catalogue: complete, sourced, physically possible, quick to load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from presim.errors import InputError
from presim.hardware import catalogue, choose_cluster
from presim.hardware.cluster import Fabric, Node
from presim.hardware.codec import from_table, to_table, unsourced
from presim.hardware.gpu_schema import Gpu, Sourced
from presim.hardware.sanity_checks import find_impossible_figures, rates

CATALOGUE = catalogue.ids(Gpu)
GPUS = [gpu.id for gpu in catalogue.gpus() if gpu.is_gpu]
ALL = [(kind, name) for kind in (Gpu, Node, Fabric) for name in catalogue.ids(kind)]
WANTED = {
    "NVIDIA, data centre": "v100-16gb-sxm v100-32gb-sxm t4 a100-40gb-sxm a100-80gb-sxm a100-40gb-pcie a100-80gb-pcie "
    "a800-80gb-sxm a10g a40 l4 l40s rtx-pro-6000 h100-sxm h100-sxm-96gb h100-pcie h100-nvl h200 h20 h800 b200 b300 "
    "gb200 gb300 v100-16gb-pcie v100-32gb-pcie p100-pcie a10 a30 l40 h200-nvl gh200",
    "NVIDIA, desktop": "rtx-3090 rtx-4090 rtx-5090 rtx-a6000 rtx-6000-ada",
    "AMD": "mi300x mi325x mi350x mi355x",
    "no GPU": "tpu-v5p tpu-v6e trainium2 gaudi3 ascend-910b ascend-910c",
}


def test_every_gpu_that_is_promised_is_there() -> None:
    assert sorted(" ".join(WANTED.values()).split()) == CATALOGUE


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_figure_has_a_source(kind: type[Sourced], name: str) -> None:
    assert unsourced(catalogue.find(kind, name)) == []


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_figure_has_one_source_and_an_estimate_says_that_it_is_one(kind: type[Sourced], name: str) -> None:
    sources = catalogue.find(kind, name).sources
    named = [key for source in sources for key in source.keys]
    assert len(named) == len(set(named))
    assert all(source.estimate for source in sources if source.text.startswith(("estimate", "assumed", "taken to")))


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_figure_is_physically_impossible(name: str) -> None:
    assert find_impossible_figures(catalogue.gpu(name)) == []


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_is_held_against_the_rates_of_its_generation(name: str) -> None:
    """A generation without rates would pass `find_impossible_figures` unseen; a peak without a rate too."""
    gpu = catalogue.gpu(name)
    peaks = {field.removesuffix("_flops") for field in gpu.__struct_fields__ if field.endswith("_flops")}
    given = {peak for peak in peaks if getattr(gpu, f"{peak}_flops")}
    emulated = {"tf32"} if name in ("mi350x", "mi355x") else set()
    assert given - emulated <= set(rates(gpu))


@pytest.mark.parametrize("name", [name for name in GPUS if name != "h20"])
def test_the_16_bit_peak_is_no_less_than_85_percent_of_what_the_units_do(name: str) -> None:
    """Catches a dense peak that was halved once too often; the H20 is limited on purpose."""
    gpu = catalogue.gpu(name)
    at_full_clock = gpu.sm_count * gpu.sm_clock_hz * rates(gpu)["fp16"]
    slow = {"a10g": 0.5, "rtx-3090": 0.5, "rtx-4090": 0.5, "l40": 0.5, "rtx-5090": 0.5}.get(
        name, 1.0
    )  # float32 accumulation at half rate
    assert 0.85 <= gpu.fp16_flops / (at_full_clock * slow) <= 1.1


def test_a_sparse_peak_and_a_two_way_bandwidth_are_caught() -> None:
    table = to_table(catalogue.gpu("h100-sxm"))
    wrong = {**table, "bf16_dense_TFLOPs": 1978.9, "memory_bandwidth_GBps": 6700}
    assert find_impossible_figures(from_table(Gpu, wrong, "wrong.toml")) == [
        "memory_bandwidth_GBps is 6700, but 5120 bits at 2 x 2619 MHz carry 3352.",
        "the dense bf16 peak is 1978.9, but 132 SMs at 1980 MHz with 4096 per clock do 1070.5 (T/s).",
    ]


def test_defaults_lead_from_a_gpu_to_a_node_to_a_fabric() -> None:
    for gpu in catalogue.gpus():
        node = catalogue.node(gpu.default_node)
        assert catalogue.fabric(node.default_fabric).port_bytes_per_s > 0
        linked = node.interconnect != "pcie"
        assert not linked or gpu.nvlink_bytes_per_s > 0, f"{gpu.id} has no links for {node.id}"


def test_links_of_a_mesh_are_symmetric_and_as_many_as_a_gpu_has() -> None:
    links = catalogue.node("dgx-v100").links
    assert len(links) == 8
    assert all(sum(row) == 6 for row in links)
    assert all(links[a][b] == links[b][a] for a in range(8) for b in range(8))


@pytest.mark.parametrize("kind", [Gpu, Node, Fabric])
def test_aliases_lead_to_parts_and_hide_none(kind: type[Sourced]) -> None:
    for alias, identity in catalogue.aliases(kind).items():
        assert identity in catalogue.ids(kind)
        assert alias not in catalogue.ids(kind)


@pytest.mark.parametrize(
    ("name", "identity"),
    [("h100", "h100-sxm"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("H100_PCIe", "h100-pcie"), (" b200 ", "b200")],
)
def test_names_are_found_whatever_their_case_and_blanks(name: str, identity: str) -> None:
    assert catalogue.gpu(name).id == identity


@pytest.mark.parametrize("name", [name for name in GPUS if not name.startswith("mi3")])
def test_a_gpu_is_found_by_the_name_that_torch_prints(name: str) -> None:
    """Except where two parts print the same; those with a card's plain name as id are found by it."""
    assert catalogue.gpu(catalogue.gpu(name).name).name == catalogue.gpu(name).name


ENDING = "`presim hardware list` shows all; a path ending in .toml is read as your own description."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h100pcie", "unknown GPU 'h100pcie': did you mean h100-pcie or p100-pcie or a100-pcie or h100? "),
        ("", "unknown GPU '': "),
        ("data/gpus/t4", "unknown GPU 'data/gpus/t4': "),
        ("y" * 300, "unknown GPU 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…yyyyyyyyyyyyyyyyyyyy (300 characters)': "),
        ("t\x004", "unknown GPU 't\\\\x004': did you mean t4? "),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        catalogue.gpu(name)
    assert str(raised.value) == message + ENDING


def test_the_peak_of_a_type_goes_by_its_name_in_torch() -> None:
    h100, v100 = catalogue.gpu("h100-sxm"), catalogue.gpu("v100")
    assert h100.peak("bfloat16") == h100.peak("bf16") == h100.bf16_flops == 989.4e12
    assert h100.peak("float8_e4m3fn") == h100.fp8_flops
    assert h100.peak("float32") == h100.fp32_flops
    assert h100.peak("float64") == h100.fp64_tensor_flops
    assert catalogue.gpu("b200").peak("float4_e2m1fn_x2") == 9e15
    assert v100.peak("bfloat16") is v100.peak("bool") is h100.peak("fp4") is None


def test_a_gpu_that_is_loaded_reads_no_other() -> None:
    """In a process of its own, since files are kept once read."""
    code = "from presim.hardware import catalogue as c; c.gpu('h100'); print(c._built_in.cache_info().currsize)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


def test_a_loaded_part_is_kept() -> None:
    assert catalogue.gpu("b200") is catalogue.gpu("B200")
    assert choose_cluster(gpu="b200").gpu is catalogue.gpu("b200")
