"""What Megatron-LM's own functional tests run on where a table of them does not say it.

Facts from ``tests/test_utils/recipes`` of its repository, whose every family of tests begins with ``nodes: 1``,
``gpus: 8`` and ``platforms: dgx_a100``; files of results are named after their platform unless it is that one. Long
runs before a release ("release" in the name) have more nodes, and how many is not said.

Files of results that are named after the cluster "dracooci" are older than those that are not, and the "lts" ones
among them are of the time when NVIDIA's container of 24.01 was that (``Dockerfile.ci.lts``; 25.09 since). Transformer
Engine finds no fused attention there that is deterministic: flash-attn's backward pass can be since 2.4.1, cuDNN's is
not on an A100. Their memory says so, too.
"""

from __future__ import annotations

from presim.validation.cases import Case
from presim.validation.megatron_family.flags import flags_of

RECIPE = "megatron_tests.py"
_SOURCE = "Megatron-LM:tests/functional_tests/"
_PLATFORM, _GPUS = "A100 (DGX A100)", "8"
_OLD_CONTAINER = "golden_values_lts_dgxa100_dracooci"


def completed(case: Case) -> Case:
    """The case with the GPU, their number and the attention that it leaves unsaid; any other case as it is."""
    if _SOURCE not in case.text("source") or "release" in case.text("model"):
        return case
    row = dict(case.row)
    if not case.text("gpu") and case.text("source").endswith(("_dev.json", "_lts.json")):
        row["gpu"] = _PLATFORM
    if not case.text("n_gpus") and "GB200" not in case.text("gpu"):  # its hosts have four: its recipes say how many
        row["n_gpus"] = _GPUS
    said = flags_of(case)
    deterministic = said.get("deterministic-mode") == "True" and said.get("transformer-impl") == "transformer_engine"
    if _OLD_CONTAINER in case.text("source") and deterministic and "attention-backend" not in said:
        row["other"] = f"{case.text('other')};attention-backend=unfused"
    return Case(row)


def is_one(case: Case) -> bool:
    """Whether the case is such a test: its steps wait for what the trainer checks and logs in each.

    That changes when hosts wait, and not what is kept; where memory alone was measured it runs all the same, so that a
    test's rows in a table of times and in one of memory share captures.
    """
    return _SOURCE in case.text("source")
