"""`presim hardware show NAME --plot` draws every part of the catalogue and cluster files."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.cli import main
from presim.hardware import fabrics, gpus, nodes
from presim.hardware.network.network_choice import network_of_part
from presim.hardware.network.topology_plot import svg

CLUSTER = """gpu = "h100-sxm"
nodes = 3
[network]
fabric = "ring"
[[groups]]
name = "old"
nodes = 1
gpu = "a100-80gb-sxm"
"""


@pytest.mark.parametrize("part", [*gpus(), *nodes(), *fabrics()], ids=lambda part: part.id)
def test_every_part_has_a_picture_with_all_of_its_links(part: object) -> None:
    built = network_of_part(part.id, part)  # type: ignore[attr-defined, arg-type]
    drawn = svg(built)
    assert drawn.count("<line") + drawn.count("<path") == built.links // 2
    assert drawn.count("<circle") == len(built.names)


def test_a_cluster_s_file_is_shown_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    drawn = tmp_path / "cluster.svg"
    assert main.run(["hardware", "show", str(tmp_path / "cluster.toml"), "--plot", str(drawn)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "the rest: h100-sxm in hgx-h100 on ib-ndr-400",
        "group 'old': 1 nodes from node 0: a100-80gb-sxm in dgx-a100 on ib-hdr-200",
        "24 GPUs, 8 on each of 3 nodes; the network has 54 vertices and 150 links, one way each",
    ]
    assert "<title>node0.router</title>" in drawn.read_text()


def test_a_cluster_that_cannot_be_is_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER + "[network.factors]\n".replace("network", "nothing"))
    drawn = tmp_path / "cluster.svg"
    assert main.run(["hardware", "show", str(tmp_path / "cluster.toml"), "--plot", str(drawn)]) == 2
    assert "unknown key" in capsys.readouterr().err
    assert not drawn.exists()


def test_links_have_the_colours_of_a_collective_s_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two nodes under leaves that are 4:1: the uplinks limit, the links within nodes are hardly used."""
    network = '[network]\nfabric = "fat-tree"\nleaf_nodes = 1\noversubscription = 4.0\n'
    (tmp_path / "cluster.toml").write_text(f'gpu = "h100-sxm"\nnodes = 2\n{network}')
    drawn = tmp_path / "loads.svg"
    words = ["--collective", "all_to_all", "--ranks", "0-8:8", "--together", "--plot", str(drawn)]
    assert main.run(["network", str(tmp_path / "cluster.toml"), *words]) == 0
    assert "leaf - spine" in capsys.readouterr().out
    lines = [line for line in drawn.read_text().splitlines() if line.startswith(("<line", "<path"))]
    loads = {line.split("<title>")[1].split("<")[0]: line.split('stroke="')[1].split('"')[0] for line in lines}
    busy = [name for name, colour in loads.items() if colour == "#c22"]
    assert sorted(busy) == ["leaf0 - spine0: 100%, 100%", "leaf1 - spine0: 100%, 100%"]
