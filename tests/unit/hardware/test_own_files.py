"""A user's own file is as good as a built-in one, and a bad one is answered with file, key and remedy."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.hardware import catalogue
from presim.hardware.cluster import Fabric, Node
from presim.hardware.codec import from_table, keys, to_table, unsourced
from presim.hardware.gpu_schema import ACCELERATOR, Gpu, Sourced

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "hardware.md"
REFERENCE = GUIDE.parents[1] / "reference" / "hardware.md"
ALL = [(kind, name) for kind in (Gpu, Node, Fabric) for name in catalogue.ids(kind)]


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_part_survives_toml_and_json(kind: type[Sourced], name: str) -> None:
    part = catalogue.find(kind, name)
    assert from_table(kind, to_table(part), name) == part
    assert msgspec.json.decode(msgspec.json.encode(part), type=kind) == part


def figures(kind: type[Sourced]) -> st.SearchStrategy[dict[str, Any]]:
    """Values for every figure of a kind, as a file could have them."""
    made: dict[str, st.SearchStrategy[Any]] = {}
    for key in keys(kind):
        whole = isinstance(key.scale, int)
        numbers = st.integers(3, 10**6) if whole else st.floats(1, 1e6).map(lambda x: float(f"{x:.9g}"))
        if key.figure and key.only != ACCELERATOR:
            made[key.key] = numbers
    return st.fixed_dictionaries(made)


@given(figures(Gpu))
def test_any_gpu_survives_toml_and_json(values: dict[str, Any]) -> None:
    sources = [{"text": "made up", "keys": sorted(values), "estimate": True}]
    text = {"id": "x", "name": "X", "vendor": "nvidia", "architecture": "a", "default_node": "n", "notes": ""}
    table = {**text, **values, "sources": sources}
    gpu = from_table(Gpu, table, "x.toml")
    assert to_table(gpu) == table
    assert msgspec.json.decode(msgspec.json.encode(gpu), type=Gpu) == gpu
    assert unsourced(gpu) == []


@given(figures(Fabric))
def test_any_fabric_survives_toml_and_json(values: dict[str, Any]) -> None:
    fabric = from_table(Fabric, {"id": "x", "name": "X", "kind": "roce", **values}, "x.toml")
    assert from_table(Fabric, to_table(fabric), "x.toml") == fabric
    assert msgspec.json.decode(msgspec.json.encode(fabric), type=Fabric) == fabric
    assert fabric.latency_ns == values["latency_us"] * 1000


def test_a_file_overrides_its_base_key_by_key(tmp_path: Path) -> None:
    path = written(tmp_path, 'base = "h100"\nmemory_MiB = 95000\npower_W = 500\n')
    mine, h100 = catalogue.gpu(path), catalogue.gpu("h100")
    assert (mine.id, mine.memory_bytes, mine.power_w) == ("mine", 95000 << 20, 500)
    assert mine.bf16_flops == h100.bf16_flops
    sources = [gpu.source("bf16_dense_TFLOPs") for gpu in (mine, h100)]
    assert [source.text for source in sources if source] == [sources[0].text if sources[0] else ""] * 2


def test_overridden_figures_lose_the_source_of_the_base(tmp_path: Path) -> None:
    mine = catalogue.gpu(written(tmp_path, 'base = "h100"\nmemory_MiB = 95000\n'))
    assert mine.source("memory_MiB") is None
    assert unsourced(mine) == ["memory_MiB"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "h100"\nmemory_GiB = 80', "unknown key memory_GiB; did you mean memory_MiB"),
        ('base = "h100"\nsm_count = 0', "sm_count = 0: must be at least 1; correct the value"),
        ('base = "h100"\nsm_count = 99999999', "sm_count = 99999999: must be at most 1048576; correct the value"),
        (
            'base = "h100"\nmemory_bandwidth_GBps = 1e30',
            "memory_bandwidth_GBps = 1e+30: must be at most 1000000000000000.0 in bytes, Hz, ns or FLOP/s; correct",
        ),
        (
            'base = "h100"\nmemory_bandwidth_GBps = 1e-300',
            "memory_bandwidth_GBps = 1e-300 is less than 0.001, and not 0; correct the value",
        ),
        ('base = "h100"\nl2_MiB = 2147483648', "l2_MiB = 2147483648: must be at most 1125899906842624 in bytes, Hz"),
        ('base = "h100"\npower_W = "700"', "power_W = '700': expected `float`, got `str`; correct the value"),
        ('base = "h100"\nvendor = "NVIDEA"', "vendor = 'NVIDEA': did you mean 'nvidia'; correct the value"),
        ('base = "h100"\nlaunch_us = 5', "launch_us is a figure of accelerators that are no GPU; leave it out."),
        ('name = "X"\nvendor = "acme"', "nominal_memory_GB, memory_bandwidth_GBps are missing"),
        (
            'name = "X"\nvendor = "acme"\nnominal_memory_GB = 8\nmemory_bandwidth_GBps = 100',
            "no peak of matrix products is given, e.g. bf16_dense_TFLOPs; correct the value",
        ),
        (
            'base = "gaudi3"\nmatrix_share = 1.5',
            "matrix_share is 1.5, but nothing reaches more than its peak: a share is at",
        ),
        (
            'base = "gaudi3"\nlink_port_GBps = 0',
            "link_ports and link_port_GBps need each other, and one of them is 0 or",
        ),
        ('base = "h100"\nsm_clock_MHz = 1980.00000001', "sm_clock_MHz = 1980.00000001 is not a whole number"),
        (
            'base = "h100"\n[[sources]]\ntext = "t"\nkeys = ["power"]',
            "a source has the key power, which is",
        ),
        ('base = "h100"\n[[sources]]\nkeys = ["power_W"]', "sources: object missing required field `text`"),
        ('base = "h10"', "unknown GPU 'h10': did you mean "),
        ("base = 1", "base = 1 must be the id of a GPU"),
        ("memory_MiB = ", "is not TOML (Invalid value"),
        ('name = "X"\nvendor = "amd"', "architecture, default_node, compute_major"),
    ],
)
def test_a_bad_file_is_one_sentence_with_file_key_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as raised:
        catalogue.gpu(path)
    said = str(raised.value)
    assert message in said
    assert said.startswith((path, "unknown GPU"))
    assert "\n" not in said
    assert said.endswith((".", "?"))


@pytest.mark.parametrize("links", ["[[0, 1], [1, 0]]", "[[0, 1, 1], [1, 0, 1], [2, 1, 0]]", "[[0, 1, 1]]"])
def test_links_that_do_not_fit_the_gpus_are_refused(tmp_path: Path, links: str) -> None:
    path = written(tmp_path, f'base = "dgx-v100"\ngpus = 3\nlinks = {links}\n')
    with pytest.raises(InputError) as raised:
        catalogue.node(path)
    assert str(raised.value) == (
        f"{path}: links must have a row for each of 3 GPUs and be the same both ways; "
        "correct the value, see docs/guide/hardware.md."
    )


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    with pytest.raises(InputError) as raised:
        catalogue.gpu(path)
    assert str(raised.value) == f"cannot read {path}: No such file or directory; give the path of a TOML file"


@pytest.mark.parametrize(
    ("text", "kind"),
    [('base = "h100"', Gpu), ('base = "hgx-h100"\nnics = 4', Node), ('kind = "roce"\nport_GBps = 50', Fabric)],
)
def test_the_kind_of_a_file_follows_from_its_keys(tmp_path: Path, text: str, kind: type[Sourced]) -> None:
    assert catalogue.kind_of(written(tmp_path, text)) is kind


def test_the_examples_of_the_guide_are_read(tmp_path: Path) -> None:
    """Each block that begins with its file's name is written there; the cluster stands on the others."""
    from presim.hardware import choose_cluster

    blocks = re.findall(r"```toml\n# (\S+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert {name for name, _ in blocks} == {"my-gpu.toml", "my-node.toml", "my-fabric.toml", "my-cluster.toml"}
    for name, text in blocks:
        tomllib.loads(text)
        (tmp_path / name).write_text(text)
    cluster = choose_cluster(cluster=tmp_path / "my-cluster.toml")
    assert (cluster.gpu.id, cluster.node.id, cluster.fabric.id) == ("my-gpu", "my-node", "my-fabric")
    assert cluster.world_size == 32


def test_the_reference_lists_every_key() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    for kind in (Gpu, Node, Fabric):
        for key in keys(kind):
            assert f"`{key.key}`" in text, f"{kind.__name__}: {key.key}"
