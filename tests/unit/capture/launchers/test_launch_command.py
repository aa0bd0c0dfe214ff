"""Launch commands: the program, the world's shape and each rank's variables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from presim.capture.launchers.launch import Launch, Shape, Worker
from presim.capture.launchers.launch_command import check_script, is_command, read_command
from presim.errors import InputError


@pytest.fixture(autouse=True)
def _no_launcher_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the variables of Slurm, torchrun and accelerate; ``python`` is this interpreter."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    for name in ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "PET_NNODES", "PET_NPROC_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def read(command: str) -> Launch:
    return read_command(command.split())


def program(launch: Launch) -> str:
    return " ".join(["-m"] * launch.module + [launch.script, *launch.args])


@pytest.mark.parametrize(
    ("command", "shape", "started"),
    [
        ("torchrun --nnodes 16 --nproc-per-node 8 train.py --batch 2", Shape(16, 8), "train.py --batch 2"),
        ("torchrun --nnodes=16 --nproc_per_node=8 -m pkg.train -q", Shape(16, 8), "-m pkg.train -q"),
        ("torchrun --nnodes 2:4 --nproc-per gpu train.py", Shape(4), "train.py"),
        ("torchrun --standalone --nproc-per-node 4 --rdzv-backend c10d train.py", Shape(1, 4), "train.py"),
        ("torchrun --nproc-per-node 2 --no-python python -u train.py a", Shape(None, 2), "train.py a"),
        ("/venv/bin/torchrun --nnodes 3 ./train.py", Shape(3), "./train.py"),
        ("python -m torch.distributed.run --nnodes 2 --nproc-per-node 8 train.py", Shape(2, 8), "train.py"),
        ("python3.11 -m torch.distributed.launch --nproc_per_node 8 train.py", Shape(None, 8), "train.py"),
        ("python train.py --nnodes 4", Shape(), "train.py --nnodes 4"),
        ("python -u -X dev -m pkg.train --lr 1", Shape(), "-m pkg.train --lr 1"),
        ("env A=1 B=2 python train.py", Shape(), "train.py"),
        ("A=1 torchrun --nnodes 2 train.py", Shape(2), "train.py"),
        ("A=1 ./train.py --lr 1", Shape(), "./train.py --lr 1"),
        ("accelerate launch --num_processes 16 --num_machines 2 train.py x", Shape(2, 8, 16), "train.py x"),
        ("accelerate launch --num-processes 4 -m pkg.train", Shape(None, None, 4), "-m pkg.train"),
        ("accelerate launch --multi_gpu train.py", Shape(), "train.py"),
        (
            "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json",
            Shape(2, 8),
            "train.py --deepspeed ds.json",
        ),
        ("deepspeed --include localhost:0,1,2 train.py", Shape(1, 3), "train.py"),
        ("deepspeed --module pkg.train", Shape(), "-m pkg.train"),
        ("srun -N16 --ntasks-per-node=8 --gres gpu:8 python train.py", Shape(16, 8), "train.py"),
        ("srun -n 32 -N 4 python -m pkg.train", Shape(4, 8, 32), "-m pkg.train"),
        ("srun --ntasks 32 --gpus-per-node h100:8 python train.py", Shape(None, 8, 32), "train.py"),
        ("srun --nodes 4 torchrun --nproc-per-node 8 train.py", Shape(4, 8), "train.py"),
        ("srun --nodes 4 torchrun --nnodes 4 --nproc-per-node 8 train.py", Shape(4, 8), "train.py"),
        ("srun torchrun --nnodes 4 --nproc-per-node 8 train.py", Shape(4, 8), "train.py"),
        ("srun -n 16 python train.py", Shape(None, None, 16), "train.py"),
        ("srun python train.py", Shape(), "train.py"),
        ("mpirun -np 16 -npernode 8 --bind-to none -mca btl ^openib python train.py", Shape(None, 8, 16), "train.py"),
        ("mpirun -np 16 --map-by ppr:4:node -x A=1 python3 train.py", Shape(None, 4, 16), "train.py"),
        ("mpirun -H a:8,b:8 python train.py", Shape(2, 8), "train.py"),
        ("mpiexec -n 8 -ppn 4 -genv A 1 python train.py", Shape(None, 4, 8), "train.py"),
    ],
)
def test_a_command_gives_program_and_shape(command: str, shape: Shape, started: str) -> None:
    launch = read(command)
    assert (launch.shape, program(launch)) == (shape, started)
    assert launch.notes == ()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("torchrun --nnodes 2", "the torchrun command has no program to start; add it after the options"),
        ("torchrun --nnodes two train.py", "torchrun: --nnodes two must be a number or MIN:MAX; correct it"),
        ("torchrun --nproc-per-node 0 train.py", "must be a number of GPUs, gpu or auto; correct it"),
        ("torchrun --nnodes", "torchrun: option --nnodes needs a value; add it"),
        ("torchrun --no-python bash train.sh", "torchrun starts 'bash', which presim cannot run"),
        ("srun -N 2 bash train.sh", "`bash train.sh` is a shell script, which presim cannot follow"),
        ("A=1 sh train.sh", "put `presim run … --` before the command that starts Python"),
        (
            "srun -N 2 numactl -N 0 python train.py",
            "presim does not support 'numactl -N 0' before a command: leave it out",
        ),
        ("env -i python train.py", "presim supports only `env NAME=value … COMMAND`"),
        ("deepspeed --include host:0-7 train.py", "must name GPUs by numbers, as in host:0,1,2"),
        (
            "srun -N 4 torchrun --nnodes 2 train.py",
            "srun starts torchrun on 4 nodes, but torchrun expects 2: correct one",
        ),
        ("srun --multi-prog programs.conf", "srun --multi-prog starts different programs"),
        ("mpirun -np 2 python a.py : -np 2 python b.py", "mpirun starts several programs (a lone `:`)"),
        ("accelerate test", "accelerate test: presim supports only `accelerate launch`"),
        ("accelerate launch --cpu train.py", "presim emulates GPUs; leave --cpu and --tpu out"),
        (
            "accelerate launch --num_machines 3 --num_processes 8 train.py",
            "8 processes cannot be split evenly over 3 machines",
        ),
        ("deepspeed --autotuning run train.py", "deepspeed --autotuning starts many jobs"),
        (
            "deepspeed --hostfile nowhere train.py",
            "cannot read nowhere: No such file or directory; give deepspeed a host file",
        ),
        ("python -c pass", "python -c: presim runs only scripts and modules (-m); put the code into a file"),
        ("torchrun torchrun --nproc-per-node 8 train.py", "torchrun starts another launcher, torchrun"),
        ("srun torchrun accelerate launch train.py", "torchrun starts another launcher, accelerate"),
        ("torchrun -m torch.distributed.run train.py", "only srun and mpirun may do that; leave one of them out"),
        ("torchrun -m presim run train.py", "runs presim inside presim: leave out all but the first `presim run`"),
        ("python -u", "`python -u` has no script or module to run"),
    ],
)
def test_an_invalid_command_is_refused_with_one_sentence(command: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read(command)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("command", "ignored"),
    [
        ("torchrun --frobnicate train.py", "--frobnicate"),
        ("torchrun --frobnicate=3 --nnodes 2 train.py", "--frobnicate=3"),
        ("srun --frobnicate 3 -N 2 python train.py", "--frobnicate 3"),
    ],
)
def test_unknown_options_are_named(command: str, ignored: str) -> None:
    launch = read(command)
    (note,) = launch.notes
    assert note == f"presim ignored unknown options of {command.split()[0]}: {ignored}."
    assert program(launch) == "train.py"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "accelerate launch --num_procesess 8 train.py",
            "accelerate launch has no option --num-procesess; did you mean",
        ),
        ("accelerate launch --fsdp-verson=2 train.py", "option --fsdp-verson; did you mean --fsdp-version?"),
        ("torchrun --nproc-per-nod0 8 train.py", "torchrun has no option --nproc-per-nod0; did you mean"),
    ],
)
def test_a_slip_of_an_option_is_refused(command: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read(command)
    assert sentence in str(caught.value)


WORKER = Worker(rank=13, world_size=32, per_node=8, port=29400)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (
            "torchrun --role r --rdzv-id 7 train.py",
            {"RANK": "13", "LOCAL_RANK": "5", "GROUP_RANK": "1", "ROLE_NAME": "r"},
        ),
        ("torchrun --virtual-local-rank train.py", {"RANK": "13", "LOCAL_RANK": "0"}),
        (
            "deepspeed train.py",
            {"RANK": "13", "LOCAL_RANK": "5", "LOCAL_SIZE": "8", "CROSS_RANK": "1", "CROSS_SIZE": "4"},
        ),
        ("srun -N 4 python train.py", {"SLURM_PROCID": "13", "SLURM_LOCALID": "5", "SLURM_TASKS_PER_NODE": "8(x4)"}),
        ("mpirun -np 32 python train.py", {"OMPI_COMM_WORLD_RANK": "13", "OMPI_COMM_WORLD_LOCAL_RANK": "5"}),
        ("mpiexec -n 32 -ppn 8 python train.py", {"PMI_RANK": "13", "MPI_LOCALRANKID": "5"}),
        ("mpirun -np 32 -x A=1 -x B=2 python train.py", {"A": "1", "B": "2"}),
        ("env A=1 torchrun train.py", {"A": "1", "RANK": "13"}),
        ("A=1 B=2 torchrun train.py", {"A": "1", "B": "2", "RANK": "13"}),
        ("srun -N 4 --export=ALL,A=1 torchrun train.py", {"A": "1", "RANK": "13"}),
        ("srun -N 4 torchrun train.py", {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "RANK": "13", "LOCAL_RANK": "5"}),
        ("accelerate launch --use_fsdp train.py", {"ACCELERATE_USE_FSDP": "true", "LOCAL_RANK": "5"}),
    ],
)
def test_a_rank_gets_the_variables_of_its_launcher(command: str, found: dict[str, str]) -> None:
    variables = read(command).variables_for(WORKER)
    assert {name: variables.get(name) for name in found} == found
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("127.0.0.1", "29400")


@pytest.mark.parametrize("command", ["srun -N 4 python train.py", "mpirun -np 32 python train.py"])
def test_launchers_other_than_torchrun_do_not_set_its_variables(command: str) -> None:
    """The script has to derive its rank as on a cluster."""
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"} & set(read(command).variables_for(WORKER))


def test_a_single_python_process_gets_no_variables() -> None:
    assert read("python train.py").variables_for(Worker(0, 1, 1, 29400)) == {}
    assert read("python train.py").variables_for(WORKER)["RANK"] == "13"


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("deepspeed train.py --x", ("--local_rank=5", "--x")),
        ("deepspeed --no_local_rank train.py --x", ("--x",)),
        ("python -m torch.distributed.launch train.py --x", ("--local-rank=5", "--x")),
        ("python -m torch.distributed.launch --use-env train.py --x", ("--x",)),
        ("torchrun train.py --x", ("--x",)),
    ],
)
def test_some_launchers_pass_the_local_rank_as_an_argument(command: str, args: tuple[str, ...]) -> None:
    assert read(command).args_for(WORKER) == args


def test_interpreter_options_are_passed_on_or_named() -> None:
    assert read("python -u -OO -W ignore -Xdev train.py").python == ("-u", "-OO", "-W", "ignore", "-Xdev")
    assert read("python -I train.py").notes == (
        "python's option -I was ignored, because the emulation needs its environment.",
    )


def test_a_different_interpreter_is_named() -> None:
    assert read(f"{sys.executable} train.py").notes == ()
    assert read("/elsewhere/bin/python3 train.py").notes == (
        f"The script ran with presim's own interpreter, {sys.executable}, not with /elsewhere/bin/python3.",
    )


def test_hosts_and_slots_come_from_a_host_file(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# ours\nworker-0 slots=4\nworker-1 slots=4  # new\n\nworker-2 slots=4\n")
    assert read(f"deepspeed --hostfile {hosts} train.py").shape == Shape(3, 4)
    assert read(f"deepspeed --hostfile {hosts} --num_nodes 2 --num_gpus 2 train.py").shape == Shape(2, 2)
    assert read(f"deepspeed --hostfile {hosts} --exclude worker-1 train.py").shape == Shape(2, 4)
    assert read(f"mpirun --hostfile {hosts} python train.py").shape == Shape(3, 4)


def test_hosts_with_different_counts_are_refused(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=4\nb slots=8\n")
    with pytest.raises(InputError, match=r"nodes with \[4, 8\] GPUs in one job"):
        read(f"deepspeed --hostfile {hosts} train.py")


def test_torchrun_s_environment_variables_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "4")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "8")
    assert read("torchrun train.py").shape == Shape(4, 8)
    assert read("torchrun --nnodes 2 train.py").shape == Shape(2, 8)


def test_scripts_are_not_commands() -> None:
    assert [is_command(word) for word in ("torchrun", "/x/python3", "train.py", "python_train.py", "pythonic")] == [
        *(True, True, False, False, False)
    ]


@pytest.mark.parametrize(
    ("shell", "started"),
    [
        (["bash", "-c", "torchrun --nnodes $NODES --node-rank 1 train.py --name 'a b'"], ("train.py", "--name", "a b")),
        (["sh", "-lc", "exec torchrun --nnodes 3 train.py"], ("train.py",)),
    ],
)
def test_a_shell_with_one_command_is_parsed_as_that_command(
    shell: list[str], started: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODES", "3")
    launch = read_command(["srun", *shell])
    assert (launch.shape, (launch.script, *launch.args)) == (Shape(3), started)


@pytest.mark.parametrize("text", ["source env; python train.py", "python train.py && echo", "python $(ls)", ""])
def test_a_shell_with_several_commands_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="shell script"):
        read_command(["bash", "-c", text])


def test_other_programs_are_refused_with_advice(tmp_path: Path) -> None:
    shell = tmp_path / "start"
    shell.write_text("#!/usr/bin/env bash\npython train.py\n")
    with pytest.raises(InputError, match="shell script"):
        check_script([str(shell)])
    with pytest.raises(
        InputError, match="presim does not support 'nohup' before a command: leave it out, and start with 'torchrun'"
    ):
        check_script(["nohup", "torchrun", "train.py"])
    check_script(["train.py", "torchrun"])
    check_script(["missing"])  # a missing script is reported elsewhere


def test_a_program_installed_by_pip_runs_as_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tune"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    launch = read("torchrun --nproc-per-node 2 --no-python tune full --lr 1")
    assert (launch.script, launch.args) == (str(program), ("full", "--lr", "1"))


@pytest.mark.parametrize(
    ("words", "content", "says"),
    [
        ("deepspeed --hostfile {file} train.py", b"a slots=\xff\n", "is not UTF-8 text"),
        ("accelerate launch --config_file {file} train.py", b"distributed_type: \xff\n", "is not UTF-8 text"),
        ("accelerate launch --config_file {file} train.py", b"distributed_type: NO\n7: 8\n", "settings without a name"),
        (
            "accelerate launch --config_file {file} train.py",
            b"distributed_type: NO\nfsdp_config: x\n",
            "settings without a name",
        ),
    ],
)
def test_a_damaged_file_of_a_launcher_is_named(words: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_bytes(content)
    with pytest.raises(InputError, match=rf"file\.yaml .*{says}"):
        read_command(words.format(file=tmp_path / "file.yaml").split())
