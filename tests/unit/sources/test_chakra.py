"""Execution traces that presim wrote come back exactly; what cannot be replayed ends in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from presim.engine.ops import host_ns
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.report import chakra
from presim.sources import source_conformance
from presim.sources.readers import open_files
from presim.sources.source import SourceRequest
from presim.trace.job import Job
from presim.trace.schema import Kind
from support.profiles import CLUSTER, program


def simulated(job: Job) -> Evaluation:
    options = Options(host_factor=1.0, contention=False)
    return evaluate(job, CLUSTER, options)


def written(folder: Path, evaluation: Evaluation) -> list[Path]:
    host = {rank: host_ns(priced.trace, evaluation.options) for rank, priced in evaluation.ranks.items()}
    return chakra.write(evaluation.ranks, host, evaluation.representatives, folder, evaluation.cluster)


def device(path: Path) -> list[tuple[object, ...]]:
    """Device work in order: what it is, how long, and which work it waits for, by its place."""
    nodes = [node for node in chakra.decode(path.read_bytes())[1] if any(one.name == "stream" for one in node.attr)]
    places = {node.id: place for place, node in enumerate(nodes)}
    return [
        (
            node.name,
            node.type,
            node.duration_micros,
            [str(one) for one in node.attr],
            [places[at] for at in node.data_deps],
        )
        for node in nodes
    ]


def test_a_job_comes_back_with_its_work_dependencies_and_step_time(tmp_path: Path) -> None:
    original = simulated(Job((program(0), program(1))))
    files = written(tmp_path / "a", original)
    job = source_conformance.check_source(open_files([tmp_path / "a"], SourceRequest()))
    again = simulated(job)
    assert original.result.step_time_s is not None
    assert again.result.step_time_s == pytest.approx(original.result.step_time_s, abs=60e-6)  # whole microseconds
    assert len(job.traces[0].steps()) == 3
    for kind in (Kind.WORK, Kind.COLLECTIVE):
        assert int(job.traces[1].mask(kind).sum()) == int(program(1).mask(kind).sum())
    second = written(tmp_path / "b", again)
    third = written(tmp_path / "c", simulated(open_files([tmp_path / "b"], SourceRequest()).job()))
    assert [device(path) for path in second[:-2]] == [device(path) for path in files[:-2]]
    assert [path.read_bytes() for path in third] == [path.read_bytes() for path in second]


def test_ranks_that_others_stand_for_are_known(tmp_path: Path) -> None:
    written(tmp_path, simulated(Job((program(0),), {0: [1]})))
    assert open_files([tmp_path], SourceRequest()).job().stands_for == {0: [1]}


def loop(nodes: list[Any]) -> None:
    nodes[0].data_deps.append(nodes[-1].id)


def undeclared(nodes: list[Any]) -> None:
    nodes[1].data_deps.append(10**6)


def twice(nodes: list[Any]) -> None:
    nodes[2].id = nodes[1].id


def unknown(nodes: list[Any]) -> None:
    node = next(node for node in nodes if node.type == 7)
    next(one for one in node.attr if one.name == "comm_type").int64_val = 77


def endless(nodes: list[Any]) -> None:
    nodes[0].duration_micros = 1 << 62


def wordy(nodes: list[Any]) -> None:
    part = next(part for node in nodes if node.type == 7 for part in node.attr if part.name == "comm_size")
    part.string_val = "many"


def vast(nodes: list[Any]) -> None:
    part = next(part for node in nodes if node.type == 7 for part in node.attr if part.name == "comm_size")
    part.int64_val = -(1 << 62)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (endless, r"node \d+ takes 4,611,686,018,427,387,904 us, and at most a day can be read; write the execution"),
        (wordy, r"the attribute comm_size = 'many'; a whole number from 0 to 1125899906842624 belongs there"),
        (vast, r"the attribute comm_size = -4611686018427387904; a whole number from 0 to 1125899906842624 belongs"),
        (loop, r"nodes depend on each other in a loop, node \d+ \('\S+.*'\) among them"),
        (undeclared, r"depends on node 1000000, which the file does not contain"),
        (twice, "has two nodes of number"),
        (unknown, "is a collective of unknown type 77; presim knows"),
    ],
)
def test_a_trace_that_cannot_be_replayed_ends_in_a_sentence(
    tmp_path: Path, change: Callable[[list[Any]], None], message: str
) -> None:
    path = written(tmp_path, simulated(Job((program(0), program(1)))))[0]
    metadata, nodes = chakra.decode(path.read_bytes())
    change(nodes)
    path.write_bytes(b"".join(chakra.delimited(each) for each in (metadata, *nodes)))
    with pytest.raises(InputError, match=message):
        open_files([tmp_path], SourceRequest()).job()


@pytest.mark.parametrize(
    ("represented", "message"),
    [
        (
            {"0": "../../x"},
            r"^'../../x' are not the ranks of a job, such as 0:8:1,12, of which there are at most 1,048,576",
        ),
        ({"0": "0:9999999:1"}, r"^'0:9999999:1' are not the ranks of a job"),
        ({"0": "1:9:0"}, r"^'1:9:0' are not the ranks of a job"),
        ({"0": "9:1"}, r"^'9:1' are not the ranks of a job"),
        ({"0": 1}, r"^stands_for beside the execution traces is no table of ranks \(Expected `str`, got `int`"),
        ({"x": "1"}, r"^stands_for beside the execution traces is no table of ranks \(Expected `int`, got `str`"),
        ([1], r"^stands_for beside the execution traces is no table of ranks \(Expected `object`, got `array`"),
    ],
)
def test_represented_ranks_that_are_none_end_in_a_sentence(tmp_path: Path, represented: object, message: str) -> None:
    files = written(tmp_path, simulated(Job((program(0),), {0: [1]})))
    (tmp_path / files[-1].name).write_text(json.dumps({"stands_for": represented}))
    with pytest.raises(InputError, match=message):
        open_files([tmp_path], SourceRequest()).job()


def test_files_that_are_cut_short_or_missing_are_named(tmp_path: Path) -> None:
    path, other, *_ = written(tmp_path, simulated(Job((program(0), program(1)))))
    with pytest.raises(InputError, match=r"1 of 2 ranks have no trace \(first: rank 0\)"):
        open_files([other], SourceRequest()).job()
    whole = path.read_bytes()
    for part in (whole[:-3], whole[:1], whole[1:]):
        path.write_bytes(part)
        with pytest.raises(InputError, match="is truncated, damaged or not a Chakra execution trace"):
            open_files([path, other], SourceRequest()).job()
    path.write_bytes(b"")
    with pytest.raises(InputError, match="has no nodes"):
        open_files([path, other], SourceRequest()).job()


def test_a_file_that_does_not_name_its_hardware_needs_a_gpu(tmp_path: Path) -> None:
    found = simulated(Job((program(0), program(1))))
    host = {rank: host_ns(priced.trace, found.options) for rank, priced in found.ranks.items()}
    chakra.write(found.ranks, host, found.representatives, tmp_path)
    with pytest.raises(InputError, match="does not name the GPU it was recorded on; give it with --gpu"):
        open_files([tmp_path], SourceRequest()).job()
    assert len(open_files([tmp_path], SourceRequest(gpu="h100-sxm")).job().traces) == 2
