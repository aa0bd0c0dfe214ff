"""How MLPerf Training's submissions with NVIDIA's code were set up where a table of them does not say it.

Facts from the repositories of results (mlcommons/training_results_v4.0 and v5.1: NVIDIA's, Dell's, Krai's, Lenovo's,
Lambda's, HPE's and Cisco's ``config_*.sh``, ``conf/*.yaml``, ``train.py``) and, of v4.1 and v5.0, from what others
publish of NVIDIA's; none is adjusted to a result. Configurations are called
``config_<system>_<nodes>x<GPUs>x<samples of a replica>xtp<..>pp<..>cp<..>[_8b][_cg][_fp4].sh``.
"""

from __future__ import annotations

import dataclasses
import re

from presim.studies.validation.cases import Case

_SOURCE = "training_results"
_ROUND = re.compile(_SOURCE + r"_v(\d+)\.(\d+)")
_CONFIGURATION = re.compile(r"config_([\w.-]+?)_(\d+)x(\d+)x(\d+)xtp(\d+)pp(\d+)cp(\d+)(\w*)\.sh")
_EARLIER = {"Cisco": (4, 1)}  # submitters whose code is of an earlier round than their results
_CHIP = re.compile(r"GB[23]00|GH200|B[23]00|H[12]00|L40S|A100|MI\d+X?")
_NODE = 8  # GPUs of a host
_HOPPER_SPLITS = 4  # GPUs that tensor parallelism takes on Hopper before a replica's others split the sequence


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What the name of a configuration says."""

    system: str
    gpus: int
    samples: int  # of a replica in a step
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    suffix: str

    @property
    def replicas(self) -> int:
        """Of the model, each with its own samples."""
        return self.gpus // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)


def is_one(case: Case) -> bool:
    """A submission to MLPerf Training."""
    return _SOURCE in case.text("source")


def is_lora(case: Case) -> bool:
    """Its fine-tuning of Llama 2 70B."""
    return is_one(case) and "lora" in f"{case.text('model')} {case.text('sharding')}".lower()


def code_of(case: Case) -> tuple[int, int]:
    """The round that the submission's code is of; (0, 0) where it is none."""
    found = _ROUND.search(case.text("source"))
    if found is None:
        return (0, 0)
    submitter = case.text("source")[found.end() :].strip(":/").partition("/")[0]
    return _EARLIER.get(submitter, (int(found[1]), int(found[2])))


def _is_hopper(case: Case) -> bool:
    return any(chip in case.text("gpu") for chip in ("H100", "H200"))


def configurations(case: Case) -> list[Configuration]:
    """Those that the row names and its model, GPUs and batch allow; of its own system alone, if there are such."""
    found = [_configuration(match) for match in _CONFIGURATION.finditer(case.text("other"))]
    found = [each for each in found if _allows(case, each)]
    said = re.search(r"/results/([^/]+)/", case.text("source"))
    own = [each for each in found if said and each.system in said[1]]
    return own or found


def _configuration(match: re.Match[str]) -> Configuration:
    nodes, gpus, samples, tensor, pipeline, context = map(int, match.groups()[1:-1])
    return Configuration(match[1], nodes * gpus, samples, tensor, pipeline, context, match[8])


def _allows(case: Case, named: Configuration) -> bool:
    chips = _CHIP.findall(named.system) or _CHIP.findall(case.text("gpu"))
    small = "8b" in case.text("model").lower()
    return (
        chips == _CHIP.findall(case.text("gpu"))
        and ("_8b" in named.suffix) == small
        and named.gpus == case.count("n_gpus", 0)
        and named.samples * named.replicas == case.count("global_batch", 0)
    )


def completed(case: Case) -> Case:
    """The case with what its empty cells follow from: FP8 (the common configuration), micro-batch, split.

    What all configurations that it may have run agree on counts. Where both number formats were shipped, Hopper ran
    FP8: it has no FP4. LoRA's micro-batch is one sample in each configuration that was shipped; its replicas take as
    many GPUs as batch and rounds leave them, which split the layers on Hopper and the sequence on Blackwell.
    """
    if not is_one(case):
        return case
    row, named = dict(case.row), configurations(case)
    hopper = _is_hopper(case)
    if not any(row.get(axis) for axis in ("tp", "pp", "cp", "dp")):
        row |= _split(case, named, hopper)
    formats = {"FP4" if "fp4" in each.suffix else "FP8" for each in named}
    if " or " in case.text("precision") and (hopper or len(formats) == 1):
        row["precision"] = "FP8" if hopper else {"FP4": "NVFP4", "FP8": "FP8"}[formats.pop()]
    row["precision"] = row.get("precision") or ("FP8 or NVFP4" if _may_be_fp4(case, named) else "FP8")
    row["micro_batch"] = row.get("micro_batch") or _micro_batch(Case(row))
    return Case(row)


def _may_be_fp4(case: Case, named: list[Configuration]) -> bool:
    """v5.1 came with configurations in either format for Blackwell, but LoRA on B200: which ran a row may not say."""
    chips = _CHIP.findall(case.text("gpu"))
    blackwell = bool(chips) and chips[0].startswith(("B", "GB"))
    return code_of(case) >= (5, 1) and blackwell and not named and not (is_lora(case) and chips[0] == "B200")


def _split(case: Case, named: list[Configuration], hopper: bool) -> dict[str, str]:
    """Tensor, pipeline, context and data parallelism; nothing where they do not follow."""
    splits = {(each.tensor_parallel, each.pipeline_parallel, each.context_parallel, each.replicas) for each in named}
    if len(splits) > 1:
        return {}
    found = splits.pop() if splits else _unnamed_split(case, hopper)
    return dict(zip(("tp", "pp", "cp", "dp"), map(str, found), strict=True)) if found else {}


def _unnamed_split(case: Case, hopper: bool) -> tuple[int, int, int, int] | None:
    """As in NVIDIA's configurations of LoRA and of 8B, whose replicas are of one or two GPUs unless a row says so."""
    gpus, samples, rounds = case.count("n_gpus", 0), case.count("global_batch", 0), case.count("grad_accum", 0)
    small = "8b" in case.text("model").lower()
    if not gpus or not samples or not rounds or not (small or is_lora(case)):
        return None
    if small and samples % (gpus * rounds) == 0:
        return (1, 1, 1, gpus)
    each, left = divmod(gpus * rounds, samples)  # GPUs of a replica whose micro-batch is one sample
    if left or (small and each > 2):
        return None
    one_h200 = "H200" in case.text("gpu") and gpus <= _NODE and code_of(case) > (4, 0)
    split = min(each, _HOPPER_SPLITS) if hopper and not small and not one_h200 else 1
    return (split, 1, each // split, gpus // each)


def _micro_batch(case: Case) -> str:
    if is_lora(case):
        return "1"
    steps = case.count("grad_accum", 0) * case.count("dp", 0)
    samples = case.count("global_batch", 0)
    return str(samples // steps) if steps and samples and samples % steps == 0 else ""


def fields(case: Case) -> dict[str, object]:
    """Of TransformerConfig, for LoRA.

    Since v5.0 sequences are split by exchanging heads (``cp_comm_type: a2a``). The activation keeps its input in FP8 on
    H200, and since v5.0 where a GPU has the whole of a sequence. Frozen weights are in what they compute in.
    """
    if not is_lora(case):
        return {}
    split, since_five = case.count("cp", 1), code_of(case) >= (5, 0)
    found: dict[str, object] = {"fp4_param": True} if "fp4" in case.text("precision").lower() else {}
    if since_five and split > 1:
        found["cp_comm_type"] = "a2a"
    if "H200" in case.text("gpu") or (since_five and split == 1):
        found["activation_func_fp8_input_store"] = True
    if drops_transposes(case):
        found["disable_parameter_transpose_cache"] = True
    return found


def drops_transposes(case: Case) -> bool:
    """LoRA's frozen weights are kept one way only (``disable_parameter_transpose_cache``).

    So the code of v4.0 and v4.1 has it (the latter as NeMo's ``mlperf_lora_llama2_70b.py``); on H200 a GPU that has the
    whole of the weights would have no room for both in later rounds either.
    """
    return is_lora(case) and ("H200" in case.text("gpu") or code_of(case) < (5, 0))


def attends_in_fp8(case: Case) -> bool:
    """LoRA's attention multiplies in FP8 (``FP8_DPA=1``), but not on L40S, nor where Hopper splits sequences.

    v4.0's configurations ask for both, but Transformer Engine had that since 1.10 only (its pull request 1114); later
    ones ask for one of them.
    """
    if not is_lora(case) or "L40S" in case.text("gpu"):
        return False
    return not _is_hopper(case) or case.count("cp", 1) == 1


def shares_no_links(case: Case) -> bool:
    """GPUs that meet by PCI Express: their exchanges do not run beside products (``TP_COMM_OVERLAP=False``)."""
    return is_one(case) and "L40S" in case.text("gpu")


def launched_as_graphs(case: Case) -> bool:
    """Whether its iteration is made of CUDA graphs.

    Since v4.1 that of LoRA is where a sequence is split, on Hopper over a whole host; v5's Llamas are, and GPT-3 where
    its configuration is called so. Cisco's 8B has none.
    """
    if is_lora(case):
        enough = _NODE if _is_hopper(case) else 2
        return (
            code_of(case) >= (4, 1) and case.count("cp", 1) > 1 and case.count("tp", 1) * case.count("cp", 1) >= enough
        )
    return code_of(case) >= (5, 0) or "_cg." in case.text("other")


def scales_by_current_values(case: Case) -> bool:
    """Plain FP8 is scaled by the tensor's own values in v5's Llamas but for LoRA."""
    return code_of(case) >= (5, 0) and not is_lora(case)
