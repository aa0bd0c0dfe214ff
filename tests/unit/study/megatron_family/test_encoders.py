"""BERT and T5 of Megatron-LM's tests become runs of the encoders' recipe."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.planners import plan
from support.plans import arguments, refusal

pytestmark = pytest.mark.usefixtures("installed")
BERT = {
    "id": "b", "framework": "Megatron-LM (CI)", "model": "bert/bert_mcore_tp2", "gpu": "H100", "n_gpus": "8",
    "n_layers": "24", "hidden": "1024", "n_heads": "16", "precision": "bf16", "seq_len": "512", "micro_batch": "4",
    "global_batch": "128", "tp": "2", "act_ckpt": "none", "other": "attention-backend=unfused",
}  # fmt: skip
T5 = {
    **BERT, "model": "t5/t5_mcore", "n_layers": "", "hidden": "768", "n_heads": "12", "global_batch": "16",
    "other": "transformer-impl=local;tokenizer-type=BertWordPieceCase;encoder-num-layers=12;decoder-num-layers=6;"
    "decoder-seq-length=128",
}  # fmt: skip


def test_bert_takes_its_vocabulary_and_transformer_engine_unless_it_says_local() -> None:
    planned = plan(Case(BERT))
    words = " ".join(planned.args)
    assert planned.recipe == "megatron_encoders.py"
    assert "--family bert" in words
    assert "--vocab 30720" in words  # 30522 in multiples of 128 on each of two ranks
    assert "--engine te --attention unfused" in words
    local = plan(Case({**BERT, "other": "attention-backend=local;spec=local"}))
    assert "--engine local --attention unfused" in " ".join(local.args)


def test_t5_has_an_encoder_and_a_decoder_of_their_own_sizes() -> None:
    words = arguments(T5)
    assert "--family t5 --decoder-layers 6 --decoder-sequence 128 --layers 12" in words
    assert "--vocab 29184" in words  # 28996 and the 100 marks of what is left out, padded
    assert "--engine local --attention unfused" in words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pp": "2"}, "Megatron has no pipeline of T5, and the case has pp = 2"),
        ({"other": "encoder-num-layers=12;decoder-num-layers=6"}, "decoder-seq-length is not given"),
    ],
)
def test_what_t5_lacks_is_said(change: dict[str, str], reason: str) -> None:
    assert refusal({**T5, **change}) == reason
