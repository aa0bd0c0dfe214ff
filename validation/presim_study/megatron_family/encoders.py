"""BERT and T5 as Megatron-LM's own scripts train them: what their rows leave to those scripts and to the tokenizers."""

from __future__ import annotations

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family.flags import flags_of
from presim_study.plan import options

RECIPE = "megatron_encoders.py"
_WORDS = {"BertWordPieceLowerCase": 30522, "BertWordPieceCase": 28996}  # of the vocabularies published with BERT
_MARKS = 100  # what T5 puts in the place of words: Megatron-LM's tests all have ``vocab-extra-ids: 100``


def family(case: Case) -> str | None:
    """``bert`` or ``t5``, where Megatron-LM's test is of one: its name is ``bert/...`` or ``t5/...``."""
    name = case.text("model").lower().partition("/")[0]
    return name if name in ("bert", "t5") else None


def completed(case: Case) -> Case:
    """The case with the shapes that its options and its tokenizer imply.

    Raises:
        CannotBuildError: T5 in a pipeline, which Megatron has not.
    """
    kind = family(case)
    if kind is None:
        return case
    said, row = flags_of(case), dict(case.row)
    tokenizer = said.get("tokenizer-type", "BertWordPieceLowerCase")  # the scripts' default
    if not row.get("vocab") and tokenizer in _WORDS:
        row["vocab"] = str(_WORDS[tokenizer] + (_MARKS if kind == "t5" else 0))
    if kind == "t5":
        if case.count("pp", 1) > 1:
            raise CannotBuildError(f"Megatron has no pipeline of T5, and the case has pp = {case.text('pp')}")
        row["n_layers"] = case.text("n_layers") or said.get("encoder-num-layers", "")
    elif "transformer-impl" not in said:  # the script's default is Transformer Engine's layers, whatever the GPT's is
        layers = "local" if said.get("spec") == "local" else "transformer_engine"
        row["other"] = f"{case.text('other')};transformer-impl={layers}"
    return Case(row)


def arguments(case: Case) -> tuple[str, ...]:
    """What the recipe takes besides the arguments of a decoder's."""
    kind, said = family(case), flags_of(case)
    if kind != "t5":
        return options(family=kind)
    missing = [name for name in ("decoder-num-layers", "decoder-seq-length") if not said.get(name)]
    if missing:
        raise CannotBuildError(f"{missing[0]} is not given")
    return options(family=kind, decoder_layers=said["decoder-num-layers"], decoder_sequence=said["decoder-seq-length"])
