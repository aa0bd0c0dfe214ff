"""The result of parsing a launch command: a program, the world's shape, and each rank's variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Shape:
    """Numbers of nodes and processes; None: not specified."""

    nodes: int | None = None
    per_node: int | None = None
    world: int | None = None


@dataclasses.dataclass(frozen=True)
class Worker:
    """One process of a world whose ranks fill its nodes one after the other."""

    rank: int
    world_size: int
    per_node: int
    port: int  # port of the launcher's store on this machine

    @property
    def local_world(self) -> int:
        """Ranks on each node."""
        return min(self.per_node, self.world_size)

    @property
    def node(self) -> int:
        """Number of the rank's node."""
        return self.rank // self.local_world

    @property
    def local(self) -> int:
        """The rank's index within its node."""
        return self.rank % self.local_world

    @property
    def nodes(self) -> int:
        """Nodes in the world."""
        return -(-self.world_size // self.local_world)


Scheme = Callable[[Worker], dict[str, str]]  # a launcher's environment variables for one process


def torchrun_variables(worker: Worker) -> dict[str, str]:
    """Variables that torchrun sets (PyTorch, torch/distributed/elastic/agent/server/local_elastic_agent.py)."""
    return {
        **store_address(worker),
        "RANK": str(worker.rank),
        "LOCAL_RANK": str(worker.local),
        "WORLD_SIZE": str(worker.world_size),
        "LOCAL_WORLD_SIZE": str(worker.local_world),
        "GROUP_RANK": str(worker.node),
        "GROUP_WORLD_SIZE": str(worker.nodes),
        "ROLE_RANK": str(worker.rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(worker.world_size),
        "TORCHELASTIC_RUN_ID": "presim",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def store_address(worker: Worker) -> dict[str, str]:
    """The address of the store for ``env://``."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(worker.port)}


@dataclasses.dataclass(frozen=True)
class Launch:
    """A parsed launch command."""

    script: str  # path of a script, or name of a module
    args: tuple[str, ...] = ()
    module: bool = False  # run as ``python -m``
    launcher: str = ""  # for messages; empty if only presim's own options were used
    shape: Shape = Shape()  # specified by the command
    default_shape: Shape = Shape()  # the launcher's default if neither its options nor presim's specify a shape
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)  # for every rank
    schemes: tuple[Scheme, ...] = (torchrun_variables,)  # for each rank; later ones override earlier ones
    python: tuple[str, ...] = ()  # interpreter options
    local_rank: str = ""  # option that passes the local rank, placed before the script's own arguments
    notes: tuple[str, ...] = ()  # sentences about what was not understood or ignored

    def variables_for(self, worker: Worker) -> dict[str, str]:
        """The environment that the launcher adds for one rank."""
        variables = dict(self.variables)
        for scheme in self.schemes:
            variables |= scheme(worker)
        return variables

    def args_for(self, worker: Worker) -> tuple[str, ...]:
        """The script's arguments on one rank."""
        return (f"{self.local_rank}={worker.local}", *self.args) if self.local_rank else self.args
