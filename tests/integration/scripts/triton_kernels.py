"""Hand-written Triton kernels of the common kinds, each launched once a step beside the library's own work."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    """One tile a program; neighbours share rows and columns."""
    down, across = tl.cdiv(m, M), tl.cdiv(n, N)
    program = tl.program_id(0)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    rows = (row * M + tl.arange(0, M)) % m
    columns = (column * N + tl.arange(0, N)) % n
    inner = tl.arange(0, K)
    left = a + rows[:, None] * k + inner[None, :]
    right = b + inner[:, None] * n + columns[None, :]
    total = tl.zeros((M, N), tl.float32)
    for step in range(tl.cdiv(k, K)):
        x = tl.load(left, inner[None, :] < k - step * K, 0.0)
        y = tl.load(right, inner[:, None] < k - step * K, 0.0)
        total = tl.dot(x, y, total)
        left += K
        right += K * n
    rows = row * M + tl.arange(0, M)
    columns = column * N + tl.arange(0, N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), inside)


@triton.jit
def persistent_product(a, b, c, m, n, k, SMS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """As many programs as there are SMs, each with every so manieth tile, by TMA."""
    left = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[M, K])
    right = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[N, K])
    out = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    across = tl.cdiv(n, N)
    tiles = tl.cdiv(m, M) * across
    for tile in tl.range(tl.program_id(0), tiles, SMS):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(k, K)):
            total = tl.dot(left.load([row, step * K]), right.load([column, step * K]).T, total)
        out.store([row, column], total.to(tl.bfloat16))


@triton.jit
def attend(
    queries, keys, values, outputs, heads, kv_heads, length, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Online softmax over tiles of keys; where causal, up to the diagonal only."""
    start, head = tl.program_id(0) * M, tl.program_id(1)
    shared = head // heads * kv_heads + head % heads // (heads // kv_heads)
    rows, inner = start + tl.arange(0, M), tl.arange(0, D)
    base = head.to(tl.int64) * length * D
    others = shared.to(tl.int64) * length * D
    query = tl.load(queries + base + rows[:, None] * D + inner[None, :], rows[:, None] < length, 0.0)
    most = tl.full((M,), -float("inf"), tl.float32)
    weights = tl.zeros((M,), tl.float32)
    total = tl.zeros((M, D), tl.float32)
    end = length
    if CAUSAL:
        end = min(length, start + M)
    for first in range(0, end, N):
        columns = first + tl.arange(0, N)
        key = tl.load(keys + others + columns[None, :] * D + inner[:, None], columns[None, :] < length, 0.0)
        scores = tl.dot(query, key) * scale
        allowed = columns[None, :] < length
        if CAUSAL:
            allowed = allowed & (rows[:, None] >= columns[None, :])
        scores = tl.where(allowed, scores, -1e9)
        higher = tl.maximum(most, tl.max(scores, 1))
        shares = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        weights = weights * shrink + tl.sum(shares, 1)
        value = tl.load(values + others + columns[:, None] * D + inner[None, :], columns[:, None] < length, 0.0)
        total = tl.dot(shares.to(value.dtype), value, total * shrink[:, None])
        most = higher
    tl.store(outputs + base + rows[:, None] * D + inner[None, :], (total / weights[:, None]).to(tl.bfloat16))


@triton.jit
def grouped_product(
    x, w, y, offsets, groups, n, k, SMS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Rows of each expert lie together; how many each has, only the device knows."""
    tile, before = tl.program_id(0), 0
    across = tl.cdiv(n, N)
    inner = tl.arange(0, K)
    for group in range(groups):
        first, last = tl.load(offsets + group), tl.load(offsets + group + 1)
        tiles = tl.cdiv(last - first, M) * across
        while tile >= before and tile < before + tiles:
            rows = first + (tile - before) // across * M + tl.arange(0, M)
            columns = (tile - before) % across * N + tl.arange(0, N)
            total = tl.zeros((M, N), tl.float32)
            for step in range(0, k, K):
                left = tl.load(x + rows[:, None] * k + step + inner[None, :], rows[:, None] < last, 0.0)
                right = tl.load(w + group * n * k + columns[None, :] * k + step + inner[:, None])
                total = tl.dot(left, right, total)
            tl.store(y + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), rows[:, None] < last)
            tile += SMS
        before += tiles


@triton.jit
def expert_product(x, w, y, experts, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """One tile a program, whose expert the device names; rows are padded to whole tiles."""
    row, column = tl.program_id(0), tl.program_id(1)
    expert = tl.load(experts + row).to(tl.int64)
    rows, columns, inner = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    if expert >= 0:
        total = tl.zeros((M, N), tl.float32)
        for step in range(0, k, K):
            left = tl.load(x + rows[:, None] * k + step + inner[None, :])
            right = tl.load(w + expert * n * k + columns[None, :] * k + step + inner[:, None])
            total = tl.dot(left, right, total)
        tl.store(y + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


@triton.jit
def quantise_groups(x, q, scales, width, GROUP: tl.constexpr):
    """A scale for each group of a row, to FP8."""
    place = tl.program_id(0).to(tl.int64) * GROUP + tl.arange(0, GROUP)
    read = tl.load(x + place).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(read)), 1e-10) / 448.0
    tl.store(q + place, tl.clamp(read / scale, -448.0, 448.0).to(tl.float8e4nv))
    tl.store(scales + tl.program_id(0), scale)


@triton.jit
def scaled_product(
    a, b, c, a_scales, b_scales, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """FP8 with a factor for each 1 x 128 of the left and 128 x 128 of the right."""
    row, column = tl.program_id(0), tl.program_id(1)
    rows, columns, inner = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for step in range(tl.cdiv(k, K)):
        left = tl.load(a + rows[:, None] * k + step * K + inner[None, :])
        right = tl.load(b + columns[None, :] * k + step * K + inner[:, None])
        one = tl.load(a_scales + rows * (k // K) + step)
        other = tl.load(b_scales + column * N // K * (k // K) + step)
        total += tl.dot(left, right) * one[:, None] * other
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


@triton.jit
def softmax_rows(x, y, rows, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        read = tl.load(x + row * width + columns, columns < width, -float("inf")).to(tl.float32)
        raised = tl.exp(read - tl.max(read, 0))
        tl.store(y + row * width + columns, (raised / tl.sum(raised, 0)).to(tl.bfloat16), columns < width)


@triton.jit
def layer_norm_rows(x, y, weight, bias, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        total += tl.load(x + row + columns, columns < width, 0.0).to(tl.float32)
    mean = tl.sum(total, 0) / width
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        off = tl.where(columns < width, tl.load(x + row + columns, columns < width, 0.0).to(tl.float32) - mean, 0.0)
        squares += off * off
    factor = 1 / tl.sqrt(tl.sum(squares, 0) / width + 1e-5)
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        read = tl.load(x + row + columns, columns < width, 0.0).to(tl.float32)
        scaled = (read - mean) * factor * tl.load(weight + columns, columns < width) + tl.load(
            bias + columns, columns < width
        )
        tl.store(y + row + columns, scaled.to(tl.bfloat16), columns < width)


def tensor(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, device="cuda", dtype=dtype)


SIZE, SMS = 8192, 132
triton.set_allocator(lambda size, alignment, stream: tensor(size, dtype=torch.int8))
a, b, c = (tensor(SIZE, SIZE) for _ in range(3))
product[(SIZE // 128 * (SIZE // 256),)](a, b, c, SIZE, SIZE, SIZE, 128, 256, 64, 8, num_warps=8)
persistent_product[(SMS,)](a, b, c, SIZE, SIZE, SIZE, SMS, 128, 256, 64, num_warps=8)
torch.mm(a, b, out=c)

batch, heads, kv_heads, length, dim = 4, 32, 8, 4096, 128
query, out = (tensor(batch, heads, length, dim) for _ in range(2))
key, value = (tensor(batch, kv_heads, length, dim) for _ in range(2))
for causal in (False, True):
    grid = (triton.cdiv(length, 128), batch * heads)
    attend[grid](query, key, value, out, heads, kv_heads, length, 0.1, 128, 64, dim, causal, num_warps=8)
    torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)

experts, rows = 8, 16384
x, y = tensor(rows, 4096), tensor(rows, 2048)
w = tensor(experts, 2048, 4096)
offsets = torch.arange(0, rows + 1, rows // experts, device="cuda", dtype=torch.int32)
grouped_product[(SMS,)](x, w, y, offsets, experts, 2048, 4096, SMS, 128, 128, 64, num_warps=8)
of_tile = torch.arange(rows // 128, device="cuda", dtype=torch.int32) // (rows // 128 // experts)
expert_product[(rows // 128, 2048 // 128)](x, w, y, of_tile, 2048, 4096, 128, 128, 64, num_warps=8)
torch._grouped_mm(x, w.transpose(1, 2), offsets[1:])

q, scales = tensor(SIZE, SIZE, dtype=torch.float8_e4m3fn), tensor(SIZE, SIZE // 128, dtype=torch.float32)
quantise_groups[(SIZE * SIZE // 128,)](a, q, scales, SIZE, 128, num_warps=1)
weight_scales = tensor(SIZE // 128, SIZE // 128, dtype=torch.float32)
scaled_product[(SIZE // 128, SIZE // 128)](q, q, c, scales, weight_scales, SIZE, SIZE, SIZE, 128, 128, 128, num_warps=8)

softmax_rows[(4 * SMS,)](a, c, SIZE, SIZE, SIZE, num_warps=8)
torch.softmax(a, -1)
norm = tensor(SIZE)
layer_norm_rows[(SIZE,)](a, c, norm, norm, SIZE, 1024, num_warps=8)
torch.nn.functional.layer_norm(a, (SIZE,), norm, norm)
torch.cuda.synchronize()
