"""Synthetic traces that look like real training steps, small enough for golden files."""

from __future__ import annotations

import dataclasses

from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Group, Manifest, Phase, Trace
from presim.trace.signatures import (
    Attention,
    Collective,
    Copy,
    Elementwise,
    Gemm,
    Index,
    Kernel,
    Normalization,
    Optimizer,
    Reduction,
    Softmax,
)

MAIN, GATHER, REDUCE = 0, 7, 11
BF16 = "bfloat16"


@dataclasses.dataclass(frozen=True)
class Shapes:
    """Sizes of a Llama; the defaults are those of Llama-3.1-8B."""

    layers: int = 32
    hidden: int = 4096
    ffn: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocab: int = 128256
    tokens: int = 8192
    ranks: int = 128

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        return self.hidden * (2 * self.hidden + 2 * self.hidden * self.kv_heads // self.heads + 3 * self.ffn)


class FsdpLlama:
    """Writes the steps of an FSDP2 Llama with full activation checkpointing, one layer after the other."""

    def __init__(self, shapes: Shapes, host_ns: int = 6_000) -> None:
        self.shapes, self.host_ns = shapes, host_ns
        self.build = TraceBuilder(_manifest(shapes))
        self._next_address = 1 << 40

    def run(self, steps: int) -> Trace:
        """The trace of that many optimizer steps."""
        self._set_up()
        for _ in range(steps):
            self._step()
        return self.build.trace()

    def _set_up(self) -> None:
        local = self.shapes.layer_parameters // self.shapes.ranks * 4
        self.build.segment(1 << 40, 6 << 30)
        for layer in range(self.shapes.layers):
            scope = f"model.layers.{layer}.mlp"
            self._keep(local, Category.PARAMETER, scope)
            self._keep(2 * local, Category.OPTIMIZER_STATE, scope)
        self.build.work(Kernel("init_kernel", (128, 1, 1), (256, 1, 1)), host_ns=900_000)

    def _step(self) -> None:
        shapes = self.shapes
        self.build.work(Copy("h2d", shapes.tokens * 8), host_ns=50_000, phase=Phase.FORWARD, operator="aten::copy_")
        self._work(
            Index(0, shapes.tokens * shapes.hidden * 2, shapes.tokens * shapes.hidden, BF16),
            "aten::embedding",
            "model.embed_tokens",
            Phase.FORWARD,
        )
        kept = []
        for layer in range(shapes.layers):
            self._gather(layer, Phase.FORWARD)
            kept.append(self._keep(shapes.tokens * shapes.hidden * 2, Category.ACTIVATION, f"model.layers.{layer}"))
            self._layer(layer, Phase.FORWARD)
        self._loss()
        for layer in reversed(range(shapes.layers)):
            self._gather(layer, Phase.BACKWARD)
            self._layer(layer, Phase.RECOMPUTE)
            self._layer(layer, Phase.BACKWARD)
            self._reduce(layer)
            self.build.free(*kept.pop())
        self._optimize()

    def _layer(self, layer: int, phase: Phase) -> None:
        shapes, scope = self.shapes, f"model.layers.{layer}"
        times = 2 if phase is Phase.BACKWARD else 1
        activation = shapes.tokens * shapes.hidden
        temporary = self._keep(shapes.tokens * shapes.ffn * 2, Category.TEMPORARY, f"{scope}.mlp", phase)
        norm = Normalization(activation * 2, activation * 2, activation, BF16)
        self._work(norm, "aten::_fused_rms_norm", f"{scope}.input_layernorm", phase)
        heads = shapes.hidden // shapes.heads * (shapes.heads + 2 * shapes.kv_heads)
        for size, name in ((heads, "qkv_proj"), (shapes.hidden, "o_proj")):
            for _ in range(times):
                self._work(
                    Gemm(shapes.tokens, size, shapes.hidden, 1, BF16), "aten::mm", f"{scope}.self_attn.{name}", phase
                )
        self._work(self._attention(phase), "aten::_scaled_dot_product_cudnn_attention", f"{scope}.self_attn", phase)
        for _ in range(3 * times):
            self._work(Gemm(shapes.tokens, shapes.ffn, shapes.hidden, 1, BF16), "aten::mm", f"{scope}.mlp", phase)
        product = Elementwise(
            shapes.tokens * shapes.ffn * 4, shapes.tokens * shapes.ffn * 2, shapes.tokens * shapes.ffn, BF16
        )
        self._work(product, "aten::mul", f"{scope}.mlp", phase)
        self.build.free(*temporary)

    def _attention(self, phase: Phase) -> Attention:
        shapes = self.shapes
        direction = "backward" if phase is Phase.BACKWARD else "forward"
        size = shapes.hidden // shapes.heads
        return Attention(
            direction, 1, shapes.heads, shapes.kv_heads, shapes.tokens, shapes.tokens, size, size, True, BF16, "cudnn"
        )

    def _loss(self) -> None:
        shapes = self.shapes
        for _ in range(3):
            self._work(Gemm(shapes.tokens, shapes.vocab, shapes.hidden, 1, BF16), "aten::mm", "lm_head", Phase.FORWARD)
        logits = shapes.tokens * shapes.vocab
        self._work(Softmax(logits * 2, logits * 2, logits, BF16), "aten::_log_softmax", "", Phase.FORWARD)

    def _gather(self, layer: int, phase: Phase) -> None:
        size = self.shapes.layer_parameters * 2
        scope = f"model.layers.{layer}"
        self.build.work(
            Collective("all_gather", size, BF16, 0),
            stream=GATHER,
            host_ns=self.host_ns,
            scope=scope,
            operator="c10d::_allgather_base_",
            phase=phase,
        )
        done = self.build.record(stream=GATHER)
        self.build.wait(done, stream=MAIN)

    def _reduce(self, layer: int) -> None:
        ready = self.build.record(stream=MAIN)
        self.build.wait(ready, stream=REDUCE)
        size = self.shapes.layer_parameters * 4
        self.build.work(
            Collective("reduce_scatter", size, "float32", 0),
            stream=REDUCE,
            host_ns=self.host_ns,
            scope=f"model.layers.{layer}",
            operator="c10d::_reduce_scatter_base_",
            phase=Phase.BACKWARD,
        )

    def _optimize(self) -> None:
        done = self.build.record(stream=REDUCE)
        self.build.wait(done, stream=MAIN)
        local = self.shapes.layer_parameters * self.shapes.layers // self.shapes.ranks
        self._work(Reduction(local * 4, 4, local, "float32"), "aten::_foreach_norm", "", Phase.OPTIMIZER)
        self._work(
            Optimizer(local * 16, local * 12, local, "float32", fused_tensors=291),
            "aten::_fused_adamw_",
            "",
            Phase.OPTIMIZER,
        )
        self.build.work(Copy("d2h", 4), host_ns=self.host_ns, phase=Phase.OPTIMIZER, operator="aten::item")
        self.build.stream_sync(stream=MAIN)
        self.build.step()

    def _work(self, signature: object, operator: str, scope: str, phase: Phase) -> None:
        self.build.work(signature, host_ns=self.host_ns, operator=operator, scope=scope, phase=phase)  # type: ignore[arg-type]

    def _keep(self, size: int, category: Category, scope: str, phase: Phase = Phase.OTHER) -> tuple[int, int]:
        address, self._next_address = self._next_address, self._next_address + size
        self.build.alloc(address, size, category=category, scope=scope, phase=phase)
        return address, size


def _manifest(shapes: Shapes) -> Manifest:
    return Manifest(
        world_size=shapes.ranks,
        rank=0,
        gpu="h100-sxm",
        gpus_per_node=8,
        script="examples/llama_fsdp2.py",
        groups=(Group("fsdp", tuple(range(shapes.ranks)), shapes.ranks),),
        versions={"presim": "0.1.0", "torch": "2.14.0"},
        unmodelled_calls={"cudaFuncSetAttribute": 3},
        device_total_bytes=85_520_809_984,
        memory_capacity_bytes=84_933_607_424,
        context_bytes=560 << 20,
        batch={"tokens": shapes.tokens, "samples": 1},
        model={"parameters": 8_030_261_248, "parameters_local": 62_736_416},
    )


def llama_8b(steps: int = 3, layers: int = 32) -> Trace:
    """Llama-3.1-8B with FSDP2 over 128 ranks."""
    return FsdpLlama(Shapes(layers=layers)).run(steps)


def launch_bound(steps: int = 2, kernels: int = 200) -> Trace:
    """Tiny kernels on one GPU, issued far slower than they run."""
    build = TraceBuilder()
    for _ in range(steps):
        for index in range(kernels):
            small = Elementwise(4096, 4096, 1024, "float32", operator="aten::add")
            build.work(small, host_ns=9_000, scope=f"net.{index % 4}", operator="aten::add", phase=Phase.FORWARD)
            build.work(
                Gemm(64, 64, 64, 1, "float32"),
                host_ns=9_000,
                scope=f"net.{index % 4}",
                operator="aten::addmm",
                phase=Phase.FORWARD,
            )
        build.step()
    return build.trace()


def out_of_memory() -> Trace:
    """A script that dies in its first forward pass."""
    build = TraceBuilder(
        Manifest(
            world_size=1,
            rank=0,
            gpu="a100-40gb-sxm",
            gpus_per_node=8,
            script="train.py",
            exit="out_of_memory",
            error="OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total "
            "capacity of 39.39 GiB of which 1.20 GiB is free.",
            device_total_bytes=42_297_786_368,
            context_bytes=480 << 20,
        )
    )
    address = 1 << 40
    build.segment(address, 38 << 30)
    for layer in range(12):
        for size, category in ((1 << 30, Category.PARAMETER), (2 << 30, Category.ACTIVATION)):
            build.alloc(address, size, category=category, scope=f"model.layers.{layer}", phase=Phase.FORWARD)
            address += size
        build.work(
            Gemm(8192, 4096, 4096, 1, BF16),
            host_ns=5_000,
            phase=Phase.FORWARD,
            scope=f"model.layers.{layer}",
            operator="aten::mm",
        )
    return build.trace()
