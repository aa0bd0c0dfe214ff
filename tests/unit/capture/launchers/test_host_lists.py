"""Hosts and slots as each launcher reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.launchers.host_lists import read_deepspeed_hosts, read_host_option, read_mpi_hosts
from presim.capture.launchers.launch import Shape
from presim.capture.launchers.launch_command import read_command
from presim.errors import InputError


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("a slots=8\nb slots=8\n", {"a": 8, "b": 8}),
        ("a max_slots=16 slots=8\r\nb slots=8 max-slots=16\r\n", {"a": 8, "b": 8}),
        ("a max_slots=4\n", {"a": 4}),
        ("a slots = 8  # new\n\n# b slots=8\n", {"a": 8}),
        ("a:8\nb:8 binding=user:0\n", {"a": 8, "b": 8}),
        ("a\na\nb\nb\n", {"a": 2, "b": 2}),
        ("a slots=4\na slots=4\n", {"a": 8}),
        ("a\nb\n", {"a": 0, "b": 0}),
        ("\ufeffa slots=8\n", {"a": 8}),
    ],
)
def test_a_host_file_of_mpi_has_the_slots_that_open_mpi_or_hydra_reads(
    text: str, slots: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_bytes(text.encode())
    assert read_mpi_hosts(str(tmp_path / "hosts")) == slots


@pytest.mark.parametrize(
    ("text", "slots"), [("a,b", {"a": 1, "b": 1}), ("a,a,b,b", {"a": 2, "b": 2}), ("a:8, b:8", {"a": 8, "b": 8})]
)
def test_each_mention_of_a_host_is_a_slot(text: str, slots: dict[str, int]) -> None:
    assert read_host_option(text) == slots


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no host; give lines such as `worker-0 slots=8`"),
        ("a slots=8\na slots=8\n", "has the host a twice, which DeepSpeed refuses; correct it"),
        ("a:8\n", "the line 'a:8' must be `host slots=8`, as DeepSpeed reads it; correct it"),
        ("a slots=eight\n", "the line 'a slots=eight' must be `host slots=8`, as DeepSpeed reads it; correct it"),
        ("a slots=" + "9" * 5000, f"the line {'a slots=' + '9' * 72!r} must be `host slots=8`"),
    ],
)
def test_what_deepspeed_refuses_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(InputError) as caught:
        read_deepspeed_hosts(str(tmp_path / "hosts"))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("-np 2 -H a,b", Shape(None, 1, 2)),
        ("-np 16 -H a,b", Shape(None, 8, 16)),
        ("-np 16 -ppn 8 -hosts a,b", Shape(None, 8, 16)),
        ("-np 4 -H a:8,b:8", Shape(None, 8, 4)),
        ("-H a,b", Shape(2, 1)),
    ],
)
def test_ranks_fill_the_slots_of_the_hosts(options: str, shape: Shape) -> None:
    assert read_command(f"mpirun {options} python train.py".split()).shape == shape


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("-np 64 -H a:8,b:8", "mpirun: 64 processes do not fit 2 hosts with 16 slots; correct one of them"),
        ("-np 12 -H a:4,b:8", "mpirun: hosts with 4, 8 slots in one job, but presim needs equal nodes"),
        ("-H a:x", "mpirun: the host 'a:x' must be a name or name:slots; correct it"),
        ("-np 8 --map-by ppr:4:socket", "does not say how many ranks a node has; give presim `--map-by ppr:N:node`"),
        ("-np " + "9" * 5000, "must be a whole number from 1 to 999,999,999; correct it"),
    ],
)
def test_hosts_that_cannot_take_the_ranks_are_refused(options: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read_command(f"mpirun {options} python train.py".split())
    assert sentence in str(caught.value)


@pytest.mark.parametrize("option", ["--nnodes", "--nproc-per-node"])
def test_a_number_of_thousands_of_digits_is_refused(option: str) -> None:
    with pytest.raises(InputError, match=rf"torchrun: {option} 9{{80}} must be a number"):
        read_command(["torchrun", option, "9" * 5000, "train.py"])


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("mpirun -np 16 --map-by node", "mpirun's --map-by node"),
        ("mpirun -np 16 --map-by ppr:8:node --rank-by node", "mpirun's --rank-by node"),
        ("mpirun -np 16 --bynode", "mpirun's --bynode"),
        ("srun -N 2 -n 16 -m cyclic", "srun's --distribution cyclic"),
        ("srun -N 2 -n 16 --distribution=block:cyclic", ""),
        ("mpirun -np 16 --map-by slot", ""),
        ("mpirun -np 16 --map-by ppr:8:node", ""),
    ],
)
def test_ranks_that_are_placed_in_turn_are_named(command: str, option: str) -> None:
    """Slurm's second part places tasks on the sockets of a node, which does not matter here."""
    notes = read_command(f"{command} python train.py".split()).notes
    assert [note.partition(" places")[0] for note in notes if "consecutive" in note] == [option] * bool(option)
