"""The messages between the launcher and the script's process: small JSON files."""

from __future__ import annotations

import msgspec

from presim.capture.steps.stopping import Stop
from presim.trace.schema import ReadBack


class Control(msgspec.Struct, frozen=True):
    """Launcher to runner."""

    script: str  # path of the script, or name of the module
    module: bool  # run as ``-m``
    args: tuple[str, ...]
    local_rank: str  # option among these that passes the local rank; empty: none
    steps: int | None  # stop after this many steps; 0: run to the end; None: until they repeat
    hook: str  # path of the operator hook
    values: dict[str, str] | None  # policies, from `device_values.policies.parse`; None: compute no values
    outcome: str  # where the runner writes its `Outcome`
    store: int = 0  # port of the rendezvous store on this machine
    rank: int = 0
    present: dict[int, str] = {}  # captured rank -> absent ranks that it represents (presim.trace.spans)
    differing_values: bool = False  # the policies give each rank its own values
    sanitize: bool = False  # check that streams synchronise
    is_scout: bool = False  # end when the script exchanges messages with ranks that do not run


class ScriptOutcome(msgspec.Struct):
    """Runner to launcher, written at the end of the script, however it ends."""

    # ok, stopped, raised, out_of_memory, exited, peers, endless (a loop on a value that never changes), unsupported
    exit: str = "ok"
    peers: tuple[int, ...] = ()  # with exit "peers": the ranks that have to run together
    code: int = 0  # the process's exit code
    error: str = ""  # the exception's last line
    end: Stop | None = None  # the script's steps, and after how many of them it was stopped
    sample: str = ""  # how samples were counted, as a clause
    used_cuda: bool = False
    has_process_group: bool = False  # it joined one of torch.distributed
    versions: dict[str, str] = {}
    facts: dict[str, int] = {}  # parameters, parameters_local, unfilled_bytes
    notes: tuple[str, ...] = ()  # sentences about what the script used
    misuse: tuple[str, ...] = ()  # misuse of CUDA, as sentences with the line of the script
    nccl: dict[str, str] = {}  # NCCL's environment variables
    neighbours: float = 0.0  # share of the machine's CPUs used by other processes meanwhile
    cpu_s: float = 0.0  # CPU time of the process since it started or was forked
    read_backs: tuple[ReadBack, ...] = ()
    rank_reads: tuple[str, ...] = ()  # places outside PyTorch that read the rank
    allocator: dict[str, int] = {}  # peak allocated and reserved bytes, as counted by PyTorch


class ForkRequest(msgspec.Struct, frozen=True):
    """Launcher to zygote: fork a rank."""

    control: str  # path of its control file
    variables: dict[str, str]  # those that the zygote lacks or has with another value
