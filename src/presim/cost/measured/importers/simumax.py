"""SimuMax's system files (Apache-2.0): training products forward and backward, attention, and grouped products.

Given as shares of a peak, per shape. One of the few public sources of weight gradients and of the attention backward
pass. Measured under training conditions: on its B200, a quarter slower than single kernels elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError
from presim.system.files import FormatError, decode_foreign_json, read_bytes
from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature

_GPUS = {"b200_bf16_ceperm": "b200", "a100_pcie": "a100-80gb-pcie"}
_LAYOUTS = {"TN": "NT", "NN": "NN", "NT": "TN"}  # column-major in this dataset


def recognises(root: Path) -> bool:
    """Whether a folder is a checkout of this dataset."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The files that are read."""
    return [path for name in sorted(_GPUS) if (path := root / f"configs/system/{name}.json").is_file()]


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """All rows; ``limit`` is ignored, since they are few.

    Raises:
        InputError: a file is no JSON of this form.
    """
    for path in files(root):
        try:
            operators = decode_foreign_json(read_bytes(path, "copy it again"))["accelerator"]["op"]
        except (FormatError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a system file of SimuMax: {error}") from error
        for name in ("matmul", "sdp_fwd", "sdp_bwd", "group_matmul"):
            peak = operators[name]["tflops"] * 1e12
            for key, share in operators[name].get("accurate_efficient_factor", {}).items():
                yield _row(_GPUS[path.stem], name, key, float(share), peak)


def _row(gpu: str, name: str, key: str, share: float, peak: float) -> Measurement | str:
    sizes = dict(part.split("=") for part in key.split(", "))
    try:
        flops, work = _product(sizes) if name == "matmul" else _other(name, sizes)
    except (KeyError, ValueError):
        return f"a key of another form: {key[:40]}"
    if share <= 0:
        return "a share of peak that is not positive"
    return Measurement(gpu=gpu, signature=work, duration_ns=flops / (share * peak) * 1e9, source="simumax")


def _product(sizes: dict[str, Any]) -> tuple[float, Signature]:
    m, n, k, batch = (int(sizes[key]) for key in "mnkb")
    work = Gemm(
        m, n, k, batch, "bfloat16", layout=_LAYOUTS[sizes["layout"]], accumulate=sizes["accumulate"] == "True",
        out_dtype="float32" if sizes["out_dtype"] == "fp32" else "bfloat16",
    )  # fmt: skip
    return work.flops, work


def _other(name: str, sizes: dict[str, Any]) -> tuple[float, Signature]:
    if name == "group_matmul":
        return _grouped(sizes)
    names = ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
    batch, length, heads, kv_heads, dim, v_dim = (int(sizes[key]) for key in names)
    direction = "backward" if name == "sdp_bwd" else "forward"
    work = Attention(direction, batch, heads, kv_heads, length, length, dim, v_dim, True, "bfloat16", "cudnn")  # type: ignore[arg-type]
    flops = 2.0 * batch * heads * length * length * (dim + v_dim)  # the causal half is counted too
    return flops * (2.5 if direction == "backward" else 1), work


def _grouped(sizes: dict[str, Any]) -> tuple[float, Signature]:
    groups, m, n, k = (int(sizes[key]) for key in ("ng", "M", "N", "K"))
    flops = 2.0 * groups * m * n * k
    if sizes["stage"] == "bwd_grad_act":
        n, k = k, n
    return flops, GroupedGemm(groups, groups * m, n, k, "bfloat16")
