"""What tables call a GPU, and what the catalogue does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.hardware.catalogue import ids
from presim.hardware.gpu_schema import Gpu
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of
from presim_study.plan import cluster_of

CHIPS = {"H100": "h100-sxm", "H200": "h200", "A100": "a100-80gb-sxm", "B200": "b200", "GB200": "gb200", "L40S": "l40s"}


def named(name: str) -> str:
    return gpu_of(Case({"id": "x", "gpu": name}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("H100 SXM5 80GB", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("DGX H100", "h100-sxm"),
        ("EOS (DGX H100)", "h100-sxm"),
        ("H100 SXM 96GB HBM2e 2.4TB/s 500W (Grand Teton)", "h100-sxm-96gb"),
        ("H100 (95.07 GiB)", "h100-sxm-96gb"),
        ("H100 NVL 94GB", "h100-nvl"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("H800 SXM (NVLink ~160 GB/s)", "h800"),
        ("A100", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb-sxm"),
        ("A100 80 GB PCIe", "a100-80gb-pcie"),
        ("A100-PCIE-40GB", "a100-40gb-pcie"),
        ("Tesla V100 32GB", "v100-32gb-sxm"),
        ("V100-SXM2-16GB", "v100-16gb-sxm"),
        ("Tesla V100-PCIE-32GB", "v100-32gb-pcie"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA Blackwell Ultra GPU (B300-SXM-270GB)", "b300"),
        ("GB200 (NVL72)", "gb200"),
        ("RTX PRO 6000 96GB", "rtx-pro-6000"),
        ("Tesla T4", "t4"),
        ("H100-80GB-SXM5", "h100-sxm"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("H200-NVL-141GB", "h200-nvl"),
        ("GH200", "gh200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("GH200 (480GB)", "gh200"),
        ("GH200 96GB HBM3", "gh200"),
        ("Tesla_P100-PCIE-16GB", "p100-pcie"),
        ("P100", "p100-pcie"),
        ("NVIDIA L40", "l40"),
        ("A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("A30 24GB", "a30"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("RTX4090", "rtx-4090"),
        ("GeForce RTX 5090 32GB", "rtx-5090"),
    ],
)
def test_chip_board_and_memory_make_the_name(name: str, expected: str) -> None:
    assert named(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("TPU v5", "Tesla P100-SXM2-16GB", "Tesla P4", "GH200 144GB HBM3e", "SM100 (B200 class)", "Quadro RTX 6000"),
        *("RTX 3090 Ti", "RTX 4090 D", "GeForce RTX 4090 Laptop GPU"),
    ],
)
def test_unknown_gpus_are_refused_not_replaced(name: str) -> None:
    with pytest.raises(CannotBuildError, match="the hardware catalogue has no GPU"):
        named(name)


@given(chip=st.sampled_from(sorted(CHIPS)), maker=st.sampled_from(["", "NVIDIA ", "nvidia "]), host=st.booleans())
def test_maker_and_host_around_a_name_change_nothing(chip: str, maker: str, host: bool) -> None:
    assert named(f"{maker}{'HGX ' if host else ''}{chip}") == CHIPS[chip]


@pytest.mark.parametrize("name", ids(Gpu))
def test_ids_of_the_catalogue_stand_for_themselves(name: str) -> None:
    assert named(name) == name


@pytest.mark.parametrize(
    ("changed", "node"),
    [
        ({}, "ovx-l40s"),
        ({"inter_link": "2x NVIDIA BlueField-3"}, "ovx-l40s"),
        ({"inter_link": "ENA 100 Gb/s"}, "l40s-8"),
        ({"gpus_per_node": "8"}, "l40s-8"),
        ({"gpus_per_node": ""}, "l40s-8"),
        ({"gpu": "NVIDIA L40"}, "l40s-8"),
    ],
)
def test_l40s_in_fours_with_bluefield_are_ovx_servers(changed: dict[str, str], node: str) -> None:
    row = {"id": "x", "gpu": "NVIDIA L40S", "n_gpus": "64", "gpus_per_node": "4", "inter_link": "2xBF3 400Gbps for EW"}
    assert cluster_of(Case({**row, **changed})).node.id == node


@pytest.mark.parametrize(
    ("changed", "node"),
    [
        ({}, "h200-nvl-4"),
        ({"n_gpus": "8"}, "pcie5-8-bridged"),
        ({"gpu": "H100 NVL"}, "pcie5-8-bridged"),
        ({"gpu": "A100 PCIe", "intra_link": "NV-Bridge"}, "pcie4-8-bridged"),
        ({"gpu": "A100 PCIe", "intra_link": "PCIe Gen4"}, "pcie4-8"),
        ({"gpu": "H100 SXM"}, "hgx-h100"),
    ],
)
def test_nvlink_between_pcie_cards_is_a_bridge(changed: dict[str, str], node: str) -> None:
    row = {"id": "x", "gpu": "NVIDIA H200 NVL", "n_gpus": "4", "intra_link": "NVLink"}
    assert cluster_of(Case({**row, **changed})).node.id == node
