"""Times of work that presim prices without a measurement: quantised and sparse products, casts, losses, scans.

    python validation/gpu/quantised.py RESULTS.jsonl SECONDS [--only TEXT]

`ns` is the median time of a call with a cold L2, all calls queued ahead, as `presim profile` measures. `kernels` are
the kernels of one more call in a warm cache: name and microseconds. The same script runs on the emulated GPU of `presim
run --live`; `compare_cases.py` holds one beside the other.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import statistics
from collections.abc import Callable, Iterator

from presim.cli.script import sentences

with sentences():
    import cases
    import torch
    from torch.nn import functional
    from torch.profiler import ProfilerActivity, profile

    from presim.cost.profile import bench
    from presim.cost.profile.kernels.tensors import random

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
FP8 = "float8_e4m3fn"
SHAPES = ((8192, 8192, 8192), (2048, 4096, 4096), (4096, 14336, 4096), (32, 8192, 8192))
MOST_KERNELS = 60
CONFIGS = 2  # of each autotuned Triton kernel; compiling all of them takes minutes
Run = Callable[[], object]
Make = Callable[[], Run]


class Clock:
    """Times calls with what `presim profile` needs for it; made once, when the first case begins."""

    @functools.cached_property
    def tools(self) -> tuple[bench.Cold, bench.Busy]:
        """Memory that sweeps L2, and products that keep the GPU busy."""
        return bench.cold(), bench.warm_up(0.5)

    def __call__(self, make: Make) -> dict[str, object]:
        """The row of a call."""
        run = make()
        run()
        times = bench.call_times(run, *self.tools)
        first, _, third = statistics.quantiles(times, n=4)
        middle = statistics.median(times)
        row = {"ns": middle * 1e6, "spread": (third - first) / 2 / max(middle, 1e-9), "runs": len(times)}
        return {**row, "kernels": kernels(run)}


def kernels(run: Run) -> list[tuple[str, float]]:
    """Names and microseconds of the kernels of one call, in order."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        run()
        torch.cuda.synchronize()
    events = [event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    return [(event.name[:90], round(event.time_range.elapsed_us(), 3)) for event in events[:MOST_KERNELS]]


def dense(m: int, n: int, k: int) -> Run:
    """A bf16 product, to relate the others to."""
    a, b = random(m, k, dtype="bfloat16"), random(n, k, dtype="bfloat16").t()
    return lambda: a @ b


def int8(m: int, n: int, k: int) -> Run:
    """PyTorch's INT8 product."""
    a, b = integers(m, k), integers(n, k).t()
    return lambda: torch._int_mm(a, b)


def integers(rows: int, columns: int) -> torch.Tensor:
    """Random bytes."""
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8, device="cuda")


def sparse(dtype: str, m: int, n: int, k: int) -> Run:
    """A product whose weight has two of every four values, by cuSPARSELt."""
    kept = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.int8).tile((n, k // 4))
    weight = (integers(n, k) if dtype == "int8" else random(n, k, dtype=dtype)) * kept.to(getattr(torch, dtype))
    rows = integers(m, k) if dtype == "int8" else random(m, k, dtype=dtype)
    packed = torch._cslt_compress(weight)
    return lambda: torch._cslt_sparse_mm(packed, rows.t())


def int4(m: int, n: int, k: int) -> Run:
    """bf16 rows and 4-bit weights in groups of 128, by PyTorch's kernel."""
    weight = torch.randint(0, 255, (n, k // 2), dtype=torch.uint8, device="cuda")
    packed = torch.ops.aten._convert_weight_to_int4pack(weight, 8)
    factors = random(k // 128, n, 2, dtype="bfloat16")
    rows = random(m, k, dtype="bfloat16")
    return lambda: torch.ops.aten._weight_int4pack_mm(rows, packed, 128, factors)


def scaled(scaling: str, fast: bool, m: int, n: int, k: int) -> Run:
    """An FP8 product with a factor a tensor, a row and column, or a block (1x128 by 128x128)."""
    a, b = random(m, k, dtype=FP8), random(n, k, dtype=FP8).t()
    if scaling == "tensor":
        of_a, of_b = (torch.ones((), device="cuda") for _ in range(2))
    elif scaling == "row":
        of_a, of_b = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
    else:
        of_a = torch.ones(k // 128, m, device="cuda").t()
        of_b = torch.ones(n // 128, k // 128, device="cuda").t()
    return lambda: torch._scaled_mm(a, b, of_a, of_b, out_dtype=torch.bfloat16, use_fast_accum=fast)


def grouped(groups: int, m: int, n: int, k: int) -> Run:
    """bf16 products of as many groups of rows, alike in size."""
    rows, stack = random(m, k, dtype="bfloat16"), random(groups, n, k, dtype="bfloat16").transpose(1, 2)
    ends = ends_of(groups, m)
    return lambda: torch._grouped_mm(rows, stack, offs=ends)


def scaled_grouped(groups: int, m: int, n: int, k: int) -> Run:
    """The same in FP8 with a factor a row and column."""
    rows, stack = random(m, k, dtype=FP8), random(groups, n, k, dtype=FP8).transpose(1, 2)
    factors = torch.ones(m, device="cuda"), torch.ones(groups, n, device="cuda")
    ends = ends_of(groups, m)
    return lambda: torch._scaled_grouped_mm(
        rows, stack, *factors, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def ends_of(groups: int, m: int) -> torch.Tensor:
    """The end of each group's rows."""
    return torch.tensor([m * (index + 1) // groups for index in range(groups)], dtype=torch.int32, device="cuda")


def casts() -> Iterator[tuple[str, Make]]:
    """What FP8 training launches beside its products in eager mode, on activations of two sizes."""
    for rows, columns in ((8192, 4096), (16384, 14336)):
        x, size = functools.partial(random, rows, columns, dtype="bfloat16"), f"{rows}x{columns}"
        yield f"cast: abs {size}", functools.partial(of, x, torch.abs)
        yield f"cast: amax {size}", functools.partial(of, x, torch.amax)
        yield f"cast: amax of rows {size}", functools.partial(of, x, lambda t: torch.amax(t, dim=-1, keepdim=True))
        yield f"cast: max of abs {size}", functools.partial(of, x, lambda t: torch.max(torch.abs(t)))
        yield f"cast: to float32 and scaled {size}", functools.partial(of, x, lambda t: t.to(torch.float32) * 0.5)
        yield f"cast: clamp {size}", functools.partial(of, x, lambda t: t.clamp(min=-448.0, max=448.0))
        yield f"cast: to FP8 {size}", functools.partial(of, x, lambda t: t.to(torch.float8_e4m3fn))
        yield f"cast: transposed {size}", functools.partial(of, x, lambda t: t.t().contiguous())
        eighth = functools.partial(random, rows, columns, dtype=FP8)
        yield f"cast: FP8 transposed {size}", functools.partial(of, eighth, lambda t: t.t().contiguous())


def of(make: Callable[[], torch.Tensor], call: Callable[[torch.Tensor], object]) -> Run:
    """A call on one tensor."""
    tensor = make()
    return lambda: call(tensor)


def ao_linear(recipe: str, m: int, n: int, k: int, backward: bool) -> Run:
    """A linear layer by torchao's FP8 training, in eager mode."""
    float8 = importlib.import_module("torchao.float8")
    config = float8.Float8LinearConfig.from_recipe_name(recipe)
    model = torch.nn.Sequential(torch.nn.Linear(k, n, bias=False, device="cuda", dtype=torch.bfloat16))
    model = float8.convert_to_float8_training(model, config=config)
    rows = random(m, k, dtype="bfloat16").requires_grad_(True)
    gradient = random(m, n, dtype="bfloat16")

    def run() -> None:
        result = model(rows)
        if backward:
            result.backward(gradient)

    return run


def cross_entropy(tokens: int, wide: bool) -> Run:
    """The loss over 128,256 words, forward and backward, from bf16 logits; `wide`: cast to fp32 first."""
    logits = random(tokens, 128256, dtype="bfloat16").requires_grad_(True)
    target = torch.randint(0, 128256, (tokens,), device="cuda")

    def run() -> None:
        loss = functional.cross_entropy(logits.float() if wide else logits, target)
        torch.autograd.grad(loss, logits)

    return run


def embedding_backward(tokens: int, words: int) -> Run:
    """The gradient of an embedding of 128,256 words from tokens among the first of them."""
    table = random(128256, 4096, dtype="bfloat16").requires_grad_(True)
    result = functional.embedding(torch.randint(0, words, (tokens,), device="cuda"), table)
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, table, gradient, retain_graph=True)


def adamw(dtype: str, kind: str) -> Run:
    """A step over 1.0e9 parameters in 128 tensors."""
    parameters = [torch.zeros(1953, 4000, device="cuda", dtype=getattr(torch, dtype)) for _ in range(128)]
    for parameter in parameters:
        parameter.requires_grad_(True).grad = torch.full_like(parameter, 1e-3)
    optimizer = torch.optim.AdamW(parameters, **{kind: True})
    return optimizer.step


def attention(backend: str, backward: bool, length: int) -> Run:
    """Causal attention of 32 heads of 128, to relate FlexAttention to."""
    kinds = importlib.import_module("torch.nn.attention")
    heads = [random(1, 32, length, 128, dtype="bfloat16").requires_grad_(backward) for _ in range(3)]

    def forward() -> torch.Tensor:
        with kinds.sdpa_kernel([getattr(kinds.SDPBackend, backend)]):
            return functional.scaled_dot_product_attention(*heads, is_causal=True)

    return forward if not backward else gradients(forward, heads)


def flex(window: int, backward: bool, length: int) -> Run:
    """FlexAttention with a causal mask, or one of a sliding window."""
    library = importlib.import_module("torch.nn.attention.flex_attention")

    def seen(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return (q >= kv) & (q - kv < window) if window else q >= kv

    mask = library.create_block_mask(seen, None, None, length, length, device="cuda")
    heads = [random(1, 32, length, 128, dtype="bfloat16").requires_grad_(backward) for _ in range(3)]
    compiled = torch.compile(library.flex_attention, dynamic=False)
    forward = functools.partial(compiled, *heads, block_mask=mask)
    return forward if not backward else gradients(forward, heads)


def gradients(forward: Run, inputs: list[torch.Tensor]) -> Run:
    """The backward pass of one forward pass."""
    result = forward()
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True)


def delta_rule(length: int, backward: bool) -> Run:
    """Gated delta nets of Qwen3-Next's shape: 16 key heads and 32 value heads of 128."""
    few_configs()
    # Before 3.7.1 Triton computes wrong gradients on Hopper, and fla refuses. The kernels take the same time.
    importlib.import_module("fla.ops.common.chunk_o").TRITON_ABOVE_3_7_1 = True
    rule = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    q, k = (functional.normalize(torch.randn(1, length, 16, 128, device="cuda"), dim=-1).bfloat16() for _ in range(2))
    v, beta = random(1, length, 32, 128, dtype="bfloat16"), torch.rand(1, length, 32, device="cuda").bfloat16()
    decay = functional.logsigmoid(torch.randn(1, length, 32, device="cuda"))
    inputs = [tensor.requires_grad_(backward) for tensor in (q, k, v, decay, beta)]

    def forward() -> torch.Tensor:
        return rule(*inputs, use_qk_l2norm_in_kernel=True)[0]

    return forward if not backward else gradients(forward, inputs)


def recurrent(sequences: int) -> Run:
    """One token of each sequence, as in decoding."""
    rule = importlib.import_module("fla.ops.gated_delta_rule").fused_recurrent_gated_delta_rule
    q, k = (random(sequences, 1, 16, 128, dtype="bfloat16") for _ in range(2))
    v, beta = random(sequences, 1, 32, 128, dtype="bfloat16"), torch.rand(sequences, 1, 32, device="cuda").bfloat16()
    decay = functional.logsigmoid(torch.randn(sequences, 1, 32, device="cuda"))
    state = torch.zeros(sequences, 32, 128, 128, device="cuda")
    return lambda: rule(q, k, v, decay, beta=beta, initial_state=state, output_final_state=True)


def few_configs() -> None:
    """Keep `CONFIGS` of each Triton kernel's configurations, of those with four warps first."""
    tuner = importlib.import_module("triton.runtime.autotuner")
    if getattr(tuner, "presim_few", False):
        return
    made = tuner.Autotuner.__init__

    def fewer(self: object, fn: object, arg_names: object, configs: list[object], *more: object, **options: object):
        ordered = sorted(configs, key=lambda config: (config.num_warps != 4, abs(config.num_stages - 3)))
        made(self, fn, arg_names, ordered[:CONFIGS], *more, **options)

    tuner.Autotuner.__init__, tuner.presim_few = fewer, True


def operators() -> Iterator[tuple[str, Make]]:
    """Operators whose prices rest on guesses."""
    rows = functools.partial(random, 8192, 8192, dtype="bfloat16")
    yield "cat 2 of 8192x8192", functools.partial(of, rows, lambda t: torch.cat([t, t]))
    yield "cat along rows", functools.partial(of, rows, lambda t: torch.cat([t, t], dim=1))
    yield "cumsum 8192x8192", functools.partial(of, rows, lambda t: torch.cumsum(t, -1))
    yield "sort 2^24 float32", functools.partial(of, lambda: torch.randn(1 << 24, device="cuda"), torch.sort)
    yield "sort 64 rows of 128256", functools.partial(of, lambda: torch.randn(64, 128256, device="cuda"), torch.sort)
    scores = functools.partial(torch.randn, 16384, 256, device="cuda")
    yield "topk 8 of 256", functools.partial(of, scores, lambda t: torch.topk(t, 8))
    words = functools.partial(torch.randn, 64, 128256, device="cuda")
    yield "topk 50 of 128256", functools.partial(of, words, lambda t: torch.topk(t, 50))
    yield "argmax of 128256", functools.partial(of, words, lambda t: torch.argmax(t, -1))
    yield "softmax of 128256", functools.partial(of, words, lambda t: torch.softmax(t, -1))
    yield "multinomial of 128256", functools.partial(of, words, lambda t: torch.multinomial(t.abs(), 1))
    yield "dropout 8192x8192", functools.partial(of, rows, lambda t: functional.dropout(t, 0.1))
    for name in ("index_select", "index_put_", "index_add_", "scatter_add_"):
        yield f"{name} 16384 rows", functools.partial(by_rows, name)
    for name in ("gelu", "silu"):
        yield f"{name} backward", functools.partial(activation_backward, name)
    yield "batch norm forward and backward", normalised


def by_rows(name: str) -> Run:
    """Rows of 4,096 taken from or put to random places."""
    target, source = (random(16384, 4096, dtype="bfloat16") for _ in range(2))
    order = torch.randperm(16384, device="cuda")
    spread = order[:, None].expand(-1, 4096)
    calls: dict[str, Run] = {
        "index_select": lambda: source.index_select(0, order),
        "index_put_": lambda: target.index_put_((order,), source),
        "index_add_": lambda: target.index_add_(0, order, source),
        "scatter_add_": lambda: target.scatter_add_(0, spread, source),
    }
    return calls[name]


def activation_backward(name: str) -> Run:
    """The gradient of an activation on 8,192 x 14,336."""
    rows = random(8192, 14336, dtype="bfloat16").requires_grad_(True)
    return gradients(lambda: getattr(functional, name)(rows), [rows])


def normalised() -> Run:
    """Batch norm of 64 images of 256 channels."""
    images = random(64, 256, 56, 56, dtype="float32").requires_grad_(True)
    layer = torch.nn.BatchNorm2d(256, device="cuda")
    return lambda: layer(images).sum().backward()


def makers() -> Iterator[tuple[str, Make]]:
    """Each case's name and what prepares its call: what Triton compiles comes last, and of that the quickest first."""
    yield from products()
    yield from training()
    yield from casts()
    yield from operators()
    for recipe, backward in itertools.product(("tensorwise", "rowwise"), (False, True)):
        yield (
            f"torchao {recipe} {'forward and backward' if backward else 'forward'} 8192x4096x4096",
            functools.partial(ao_linear, recipe, 8192, 4096, 4096, backward),
        )
    yield from compiled()


def products() -> Iterator[tuple[str, Make]]:
    """Matrix products."""
    for shape in SHAPES:
        size = "x".join(map(str, shape))
        yield f"bf16 {size}", functools.partial(dense, *shape)
        yield f"int8 {size}", functools.partial(int8, *shape)
        for scaling, fast in (("tensor", True), ("tensor", False), ("row", True), ("block", False)):
            yield (
                f"fp8 {scaling}{' fast' if fast else ''} {size}",
                functools.partial(scaled, scaling, fast, *shape),
            )
        for dtype in ("bfloat16", "int8"):
            yield f"2:4 {dtype} {size}", functools.partial(sparse, dtype, *shape)
    for m, (n, k) in itertools.product((1, 16, 64, 512), ((8192, 8192), (14336, 4096))):
        yield f"w4a16 {m}x{n}x{k}", functools.partial(int4, m, n, k)
    for groups, (n, k) in itertools.product((8, 64, 128), ((4096, 2048), (2048, 7168))):
        yield f"grouped bf16 {groups} of 16384x{n}x{k}", functools.partial(grouped, groups, 16384, n, k)
        yield f"grouped fp8 {groups} of 16384x{n}x{k}", functools.partial(scaled_grouped, groups, 16384, n, k)


def training() -> Iterator[tuple[str, Make]]:
    """Losses, embeddings, optimizer steps and attention."""
    for wide in (False, True):
        yield f"cross entropy 8192x128256{' in float32' if wide else ''}", functools.partial(cross_entropy, 8192, wide)
    for words in (128256, 1024):
        yield f"embedding backward 8192 of {words}", functools.partial(embedding_backward, 8192, words)
    for dtype, kind in (("float32", "fused"), ("bfloat16", "fused"), ("float32", "foreach")):
        yield f"AdamW {kind} {dtype}", functools.partial(adamw, dtype, kind)
    for backend, backward in itertools.product(("FLASH_ATTENTION", "CUDNN_ATTENTION"), (False, True)):
        name = f"{backend.split('_')[0].lower()} {'backward' if backward else 'forward'} 8192"
        yield name, functools.partial(attention, backend, backward, 8192)


def compiled() -> Iterator[tuple[str, Make]]:
    """What Triton compiles first, which takes seconds a case."""
    for sequences in (1, 64):
        yield f"recurrent delta rule of {sequences}", functools.partial(recurrent, sequences)
    for backward in (False, True):
        for window in (1024, 0):
            name = f"flex {f'window {window}' if window else 'causal'} {'backward' if backward else 'forward'} 8192"
            yield name, functools.partial(flex, window, backward, 8192)
        for length in (8192, 2048):
            name = f"gated delta rule {'backward' if backward else 'forward'} {length}"
            yield name, functools.partial(delta_rule, length, backward)


def table() -> dict[str, cases.Case]:
    """All cases."""
    clock = Clock()
    return {name: functools.partial(clock, make) for name, make in makers()}


if __name__ == "__main__":
    with sentences():
        cases.main(__doc__ or "", table)
