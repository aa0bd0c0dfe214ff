"""What has to run for a deployment: engines by role, each instance with its GPUs and ports, and a router."""

from __future__ import annotations

import dataclasses
from typing import Literal

from presim.hardware import Cluster, Gpu
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.engines.engine import Role
from presim.serving.launching.checkpoint_source import CheckpointSource, checkpoint_source
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import PricedEngine

RouterProgram = Literal["vllm", "sglang", "dynamo", "llm-d"]
ROUTER_PORT, ENGINE_PORT = 8000, 8100
_SIDE_CHANNEL_PORT, _BOOTSTRAP_PORT, _RPC_PORT = 5600, 8998, 29550  # the engines' own defaults
_PORTS_OF_ENGINE = 64  # side channels of an engine's ranks are counted on from the first port


@dataclasses.dataclass(frozen=True)
class EngineRole:
    """Engines that are alike."""

    name: str  # of scripts, services and hosts
    role: Role
    plan: ServingPlan
    count: int
    source: CheckpointSource
    gpu: Gpu
    gpus_per_node: int

    @property
    def gpu_label(self) -> str:
        """The value of `nvidia.com/gpu.product` on machines with this GPU, by NVIDIA's feature discovery."""
        return self.gpu.name.replace(" ", "-")

    @property
    def nodes(self) -> int:
        """Machines of one engine."""
        return -(-self.plan.gpus // self.gpus_per_node)


@dataclasses.dataclass(frozen=True)
class Instance:
    """One engine on a machine that it may share with others."""

    role: EngineRole
    index: int  # among its role
    port: int
    gpu_ids: tuple[int, ...]
    side_channel_port: int
    bootstrap_port: int
    rpc_port: int

    @property
    def name(self) -> str:
        """Name of its service."""
        return f"{self.role.name}-{self.index}"


@dataclasses.dataclass(frozen=True)
class LaunchSet:
    """All that runs for a deployment."""

    roles: tuple[EngineRole, ...]
    router: RouterProgram

    @property
    def engine(self) -> str:
        """Whose server is started."""
        return self.roles[0].plan.decides

    @property
    def source(self) -> CheckpointSource:
        """The checkpoint of all roles."""
        return self.roles[0].source

    @property
    def gpus(self) -> int:
        """GPUs of all engines."""
        return sum(role.plan.gpus * role.count for role in self.roles)

    @property
    def has_mixed_gpus(self) -> bool:
        """Whether roles have different GPUs, and therefore machines of their own."""
        return len({role.gpu.id for role in self.roles}) > 1

    @property
    def fits_a_node(self) -> bool:
        """Whether all engines share one machine."""
        return not self.has_mixed_gpus and self.gpus <= self.roles[0].gpus_per_node

    @property
    def needs_router(self) -> bool:
        """Whether there is more than one engine."""
        return sum(role.count for role in self.roles) > 1

    @property
    def problems(self) -> tuple[str, ...]:
        """What a user has to do first, in sentences."""
        return tuple(dict.fromkeys(role.source.problem for role in self.roles if role.source.problem))

    def instances(self) -> list[Instance]:
        """The engines of one machine, with GPUs and ports of their own."""
        placed: list[Instance] = []
        first_gpu = 0
        for role in self.roles:
            for index in range(role.count):
                number = len(placed)
                gpu_ids = tuple(range(first_gpu, first_gpu + role.plan.gpus))
                first_gpu += role.plan.gpus
                port = ENGINE_PORT + number if self.needs_router else ROUTER_PORT
                side_channel = _SIDE_CHANNEL_PORT + _PORTS_OF_ENGINE * number
                placed.append(
                    Instance(role, index, port, gpu_ids, side_channel, _BOOTSTRAP_PORT + number, _RPC_PORT + number)
                )
        return placed


def launch_set_of(point: DeploymentPoint, word: str, router: RouterProgram | None = None) -> LaunchSet:
    """The engines of a deployment of the model that ``word`` means."""
    engine, prefill = point.engine, point.prefill or point.engine

    def role(name: str, kind: Role, built: PricedEngine, count: int) -> EngineRole:
        cluster: Cluster = built.cluster
        source = checkpoint_source(word, built.model, built.plan)
        return EngineRole(name, kind, built.plan, count, source, cluster.gpu, cluster.node.gpus)

    roles: tuple[EngineRole, ...] = (role("engine", "any", engine, point.replicas),)
    if point.prefill_replicas:
        roles = (
            role("prefill", "prefill", prefill, point.prefill_replicas),
            role("decode", "decode", engine, point.replicas),
        )
    return LaunchSet(roles, router or engine.plan.decides)
