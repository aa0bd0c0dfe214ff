"""The verb `hardware`: lists, shows with sources, prints files to start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.cli import main
from presim.hardware import catalogue


def test_list_names_every_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main.run(["hardware", "list"]) == 0
    out = capsys.readouterr().out
    for part in (*catalogue.gpus(), *catalogue.nodes(), *catalogue.fabrics()):
        assert part.id in out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_figure_of_the_list_loses_digits(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main.run(["hardware", "list"]) == 0
    out = capsys.readouterr().out
    (line,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["b300"])
    assert line[-7:] == ["267.7", "7.70", "2250", "4500", "13500", "900", "1100"]
    for node in catalogue.nodes():
        assert node.default_fabric in out


def test_list_as_json_has_every_figure_in_one_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["hardware", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    h100 = next(gpu for gpu in listed["gpus"] if gpu["id"] == "h100-sxm")
    assert (h100["memory_bytes"], h100["bf16_flops"]) == (81079 << 20, 989.4e12)
    assert len(listed["nodes"]) == len(catalogue.nodes())
    assert len(listed["fabrics"]) == len(catalogue.fabrics())


def test_show_gives_each_figure_its_source_and_marks_estimates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = {}
    for name in ("a40", "h100"):
        assert main.run(["hardware", "show", name]) == 0
        out = capsys.readouterr().out
        lines[name] = {words[0]: words[1:3] for line in out.splitlines() if (words := line.split())}
    assert lines["h100"]["bf16_dense_TFLOPs"] == ["989.4", "[1]"]
    assert lines["h100"]["context_MiB"] == ["755", "[4]"]
    assert lines["a40"]["context_MiB"][0] == "~350"
    assert "[1] NVIDIA H100 Tensor Core GPU Architecture whitepaper" in out


@pytest.mark.parametrize("name", ["hgx-h100", "ib-ndr-400", "gb200-nvl72", "ndr"])
def test_show_knows_nodes_and_fabrics(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["hardware", "show", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == {"ndr": "ib-ndr-400"}.get(name, name)


def test_the_file_of_a_part_can_be_saved_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["hardware", "show", "a100-80gb-sxm", "--toml"]) == 0
    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out)
    assert main.run(["hardware", "show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {**shown, "id": "a100-80gb-sxm"} == json.loads(_json_of("a100-80gb-sxm", capsys))


def test_show_says_what_cannot_be_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "h100"\nbf16_dense_TFLOPs = 1979\n')
    assert main.run(["hardware", "show", str(path)]) == 0
    assert "implausible: the dense bf16 peak is 1979.0" in capsys.readouterr().out


def test_an_unknown_name_is_input_that_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["hardware", "show", "h10000"]) == 2
    assert capsys.readouterr().err == (
        "presim: no GPU, node type or fabric is called 'h10000'; did you mean h100 or h100-80gb or v100 or p100?\n"
    )


def _json_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    main.run(["hardware", "show", name, "--json"])
    return capsys.readouterr().out


def test_two_ways_to_show_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["hardware", "show", "h100-sxm", "--json", "--toml"]) == 2
    assert "--json and --toml exclude each other" in capsys.readouterr().err
