"""What the launcher tells the script's process, and what that process answers: two small JSON files."""

from __future__ import annotations

import msgspec

from presim.trace.schema import ReadBack


class Control(msgspec.Struct, frozen=True):
    """Launcher to runner."""

    script: str  # path of the script, or name of the module
    module: bool  # run as ``-m``
    args: tuple[str, ...]
    steps: int  # stop after so many optimizer steps; 0: run to the end
    hook: str  # path of the operator hook
    values: (
        dict[str, str] | None
    )  # policies as `presim.capture.device_values.policies.parse` checked them; None: no values at all
    outcome: str  # where the runner writes its `Outcome`
    store: int = 0  # port of the rendezvous store on this machine
    rank: int = 0
    present: dict[int, str] = {}  # ranks that run together -> the others they stand for (presim.trace.spans)
    sanitize: bool = False  # check that streams wait for each other
    is_scout: bool = False  # end where the script meets ranks that it cannot do without


class Outcome(msgspec.Struct):
    """Runner to launcher. Written at the end of the script, however it ends."""

    # ok, stopped, raised, out_of_memory, exited, peers, endless (a loop on a value that never changes), unsupported
    exit: str = "ok"
    peers: tuple[int, ...] = ()  # ranks that this one exchanges with, where it ended for want of them
    code: int = 0  # the process's exit code
    error: str = ""  # the exception's last line
    steps: int = 0
    used_cuda: bool = False
    versions: dict[str, str] = {}
    facts: dict[str, int] = {}  # tokens, samples (of all steps_with_input together), parameters, parameters_local
    notes: tuple[str, ...] = ()  # sentences about what the script used
    misuse: tuple[str, ...] = ()  # what CUDA would punish, as sentences with the line of the script
    nccl: dict[str, str] = {}  # NCCL's environment variables
    neighbours: float = 0.0  # share of the machine's CPUs that other processes used meanwhile
    read_backs: tuple[ReadBack, ...] = ()
    rank_reads: tuple[str, ...] = ()  # places outside PyTorch that ask which rank this is
    allocator: dict[str, int] = {}  # peak allocated and reserved bytes, as PyTorch itself counts them


class Request(msgspec.Struct, frozen=True):
    """Launcher to zygote: become a rank."""

    control: str  # path of its control file
    variables: dict[str, str]  # those that the zygote has not, or has otherwise
