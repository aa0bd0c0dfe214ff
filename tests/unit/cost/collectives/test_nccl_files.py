"""NCCL_GRAPH_FILE and NCCL_TOPO_FILE change what NCCL chooses, or are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim import hardware
from presim.cost.collectives.explained import variable_lines
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import call_of, library_choice
from presim.cost.collectives.nccl_choice import AlgorithmChoice
from presim.cost.collectives.nccl_environment import Tuning, ignored_variables, tuning_of
from presim.errors import InputError
from presim.trace.collective import Collective
from presim.trace.schema import Group

GPUS = "".join(f'<gpu dev="{gpu}"/>' for gpu in range(8))
GRAPH = f"""<graphs version="1">
<graph id="0" pattern="4" nchannels="2" speedintra="12" speedinter="6"><channel>{GPUS}</channel></graph>
<graph id="1" pattern="1" nchannels="2" speedintra="12" speedinter="6"><channel>{GPUS}</channel></graph>
</graphs>"""


def topology(links: int, speed: int) -> str:
    gpus = "".join(
        f'<pci busid="{gpu}"><gpu dev="{gpu}" rank="{gpu}" sm="80" gdr="1">'
        f'<nvlink target="s" count="{links}" tclass="0x068000"/></gpu></pci>'
        for gpu in range(8)
    )
    nets = "".join(f'<nic><net name="mlx5_{port}" dev="{port}" speed="{speed}"/></nic>' for port in range(8))
    return f'<system version="1"><cpu numaid="0">{gpus}{nets}</cpu></system>'


def choice(size: int, nodes: int, tuning: Tuning) -> AlgorithmChoice:
    cluster = hardware.choose_cluster(gpu="a100-80gb-sxm", nodes=nodes)
    collective = Collective(kind="all_reduce", bytes=size, dtype="bfloat16", group=0)
    layout = layout_of(collective, Group("g", tuple(range(8 * nodes)), 8 * nodes), cluster)
    call = call_of(collective, layout, links_of(cluster, layout, tuning), tuning, cluster)
    chosen = library_choice(call, tuning)
    assert chosen is not None
    return chosen


def with_file(tmp_path: Path, name: str, text: str) -> Tuning:
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / f"{name}.xml"
    path.write_text(text)
    return tuning_of({name: str(path)})


def test_a_graph_file_replaces_the_search(tmp_path: Path) -> None:
    graph = with_file(tmp_path, "NCCL_GRAPH_FILE", GRAPH)
    few, many = choice(1 << 28, 2, graph), choice(1 << 28, 2, Tuning())
    assert (few.channels, many.channels) == (4, 16)
    assert few.seconds > 4 * many.seconds


def test_a_topology_file_tells_of_slower_ports_and_fewer_links(tmp_path: Path) -> None:
    usual, slow, bridged = (
        choice(1 << 28, nodes, with_file(tmp_path / name, "NCCL_TOPO_FILE", topology(links, speed)))
        for name, nodes, links, speed in (("a", 2, 12, 200_000), ("b", 2, 12, 50_000), ("c", 1, 4, 200_000))
    )
    assert usual.seconds == pytest.approx(choice(1 << 28, 2, Tuning()).seconds, rel=0.1)
    assert slow.seconds > 2 * usual.seconds
    assert bridged.seconds > 2 * choice(1 << 28, 1, Tuning()).seconds


def test_a_file_that_is_only_on_the_nodes_is_named() -> None:
    environment = {"NCCL_TOPO_FILE": "/opt/not/here.xml", "NCCL_DEBUG": "INFO"}
    assert ignored_variables(environment) == ["NCCL_TOPO_FILE"]
    assert tuning_of(environment) == Tuning()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("NCCL_GRAPH_FILE", "<graphs", "the file is not XML"),
        ("NCCL_GRAPH_FILE", "<system/>", "its root is <system>, and NCCL's has <graphs>; dump it again"),
        ("NCCL_GRAPH_FILE", "<graphs/>", "it has no graph with id 0, the rings; dump it again"),
        ("NCCL_GRAPH_FILE", '<graphs><graph id="0" nchannels="900"/></graphs>', "nchannels = 900 is not from 1 to 64"),
        ("NCCL_GRAPH_FILE", GRAPH.replace('"12"', '"-1"'), "is no positive number; correct it"),
        ("NCCL_TOPO_FILE", '<system><net speed="fast"/></system>', "<net speed='fast'> is no positive number"),
        ("NCCL_TOPO_FILE", '<!DOCTYPE s [<!ENTITY a "b">]><system/>', "the file is not XML (it declares entities)"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        with_file(tmp_path, name, text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_slow_ports_beside_fast_ones_are_left_out(tmp_path: Path) -> None:
    """A dump lists ports for management and storage, too, which NCCL's search does not use."""
    with_slow_port = topology(12, 200_000).replace("</cpu>", '<nic><net name="eth0" speed="1000"/></nic></cpu>')
    usual, beside_slow = (
        with_file(tmp_path / name, "NCCL_TOPO_FILE", text)
        for name, text in (("a", topology(12, 200_000)), ("b", with_slow_port))
    )
    assert choice(1 << 28, 2, beside_slow) == choice(1 << 28, 2, usual)


@pytest.mark.parametrize(
    "text",
    [
        '<system><cpu><pci class="0x030200"/><pci class="0x020700"/></cpu></system>',
        '<system><cpu><gpu dev="0"/><nic><net name="mlx5_0"/></nic></cpu></system>',
    ],
)
def test_a_file_that_nccl_completes_changes_nothing_and_says_so(tmp_path: Path, text: str) -> None:
    """Clouds ship such files: they place devices on PCIe, and NCCL detects links and ports."""
    tuning = with_file(tmp_path, "NCCL_TOPO_FILE", text)
    assert choice(1 << 28, 2, tuning) == choice(1 << 28, 2, Tuning())
    path = str(tmp_path / "NCCL_TOPO_FILE.xml")
    assert list(variable_lines({"NCCL_TOPO_FILE": path, "NCCL_GRAPH_FILE": "/opt/not/here.xml"})) == [
        "  NCCL_GRAPH_FILE=/opt/not/here.xml: not modelled, as the file is not on this machine",
        f"  NCCL_TOPO_FILE={path}: without effect: the file lists neither NVLinks nor ports, which NCCL detects when "
        "it starts",
    ]
