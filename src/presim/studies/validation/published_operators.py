"""Compares predicted operator times with published ones.

Columns: ``gpu``, ``family`` (of a signature: gemm, attention, softmax …), ``time_us``, and the fields of that signature
under their own names. Fields with a default may be empty.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.learned.learned_estimator import LearnedEstimator
from presim.cost.measured.measured_rows import Measurement, reason_to_reject
from presim.cost.price import Estimator, Price
from presim.hardware.catalogue import find
from presim.hardware.gpu_schema import Gpu
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of
from presim.studies.validation.time_tables import Times
from presim.system.files import FormatError, convert
from presim.trace.dtypes import is_dtype
from presim.trace.signatures import Gemm, Signature, family

_CLASSES = {str(kind.__struct_config__.tag): kind for kind in get_args(Signature)}
_MANY = ("collective", "kernel", "fused")  # they need a cluster, or have only a name
_SIZES = ("_size", "stride", "dilation")  # fields of a convolution: 224x224
_USUAL: Mapping[str, Mapping[str, str]] = {  # field -> its column, or its value
    "gemm": {"batch": "1"},
    "attention": {
        "direction": "forward",
        "batch": "1",
        "kv_heads": "heads",
        "kv_len": "q_len",
        "v_head_dim": "head_dim",
        "causal": "false",
        "backend": "flash",
    },
}


def signature_of(case: Case) -> Signature:
    """The signature of a row.

    Raises:
        CannotBuildError: the family is unknown, or a field is missing or invalid.
    """
    name = case.text("family")
    if name not in _CLASSES or name in _MANY:
        families = ", ".join(sorted(set(_CLASSES) - set(_MANY)))
        raise CannotBuildError(f"family = {name!r} is none of {families}")
    usual = _USUAL.get(name, {})
    fields: dict[str, Any] = {"family": name}
    for field in msgspec.structs.fields(_CLASSES[name]):
        text = case.text(field.name) or usual.get(field.name, "")
        text = case.text(text) or text
        if text:
            fields[field.name] = tuple(text.split("x")) if "x" in text and field.name.endswith(_SIZES) else text
        elif field.required:
            raise CannotBuildError(f"{field.name} is not given, and the family {name!r} needs it")
    try:
        signature: Signature = convert(fields, _CLASSES[name], strict=False)
    except FormatError as error:
        raise CannotBuildError(f"the row describes no {name}: {error}") from None
    _check_words(signature)
    return signature


def _check_words(signature: Signature) -> None:
    """Raise a `CannotBuildError` for an unknown type or layout, which would get a wrong price."""
    for field in ("dtype", "out_dtype", "b_dtype"):
        if (name := getattr(signature, field, "")) and not is_dtype(name):
            raise CannotBuildError(f"{field} = {name!r} is not a type of PyTorch, such as bfloat16 or float8_e4m3fn")
    if isinstance(signature, Gemm) and not re.fullmatch("[NT]{2}", signature.layout):
        raise CannotBuildError(f"layout = {signature.layout!r} is none of NN, NT, TN, TT")


def _price(case: Case, measured_us: float) -> Price:
    gpu, signature = gpu_of(case), signature_of(case)
    if reason := reason_to_reject(Measurement(gpu=gpu, signature=signature, duration_ns=measured_us * 1e3, source="")):
        raise CannotBuildError(f"left out: {reason}")
    for estimator in _estimators(gpu):
        (price,) = estimator.price([signature])
        if price is not None:
            return price
    raise CannotBuildError(f"nothing prices {family(signature)} on {gpu}")


@functools.lru_cache(maxsize=8)
def _estimators(gpu: str) -> tuple[Estimator, ...]:
    """The default estimators, but for a GPU that is idle between kernels, as in benchmarks of single operators."""
    chip = find(Gpu, gpu)
    return LearnedEstimator(chip, burst=True), AnalyticEstimator(chip, burst=True)


def _group(row: Mapping[str, str]) -> tuple[str, ...]:
    return re.split(r" \(|#", row.get("source", ""))[0], row["gpu"], row["family"], row.get("dtype", "")


OPERATORS = Times(
    row_name="an operator",
    required=("gpu", "family", "time_us"),
    price_of=_price,
    title="Operators",
    headings=("source", "GPU", "family", "dtype"),
    group_of=_group,
)
