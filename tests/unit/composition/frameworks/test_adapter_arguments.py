"""Options of adapters are checked before a program starts."""

from __future__ import annotations

import pytest

from presim.composition.frameworks.adapter_arguments import check_adapters, split_adapters
from presim.errors import InputError


def test_options_of_the_launcher_stay_with_it() -> None:
    words = [
        "--fsdp_reshard_after_forward",
        "false",
        "--lora_r=16",
        "--lora_target_modules",
        "q_proj",
        "v_proj",
        "--num_cpu",
        "3",
    ]
    launcher_words, adapters = split_adapters(words)
    assert launcher_words == ["--fsdp_reshard_after_forward", "false", "--num_cpu", "3"]
    assert adapters == ["--lora_r", "16", "--lora_target_modules", "q_proj", "v_proj"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--lora_r x", "--lora_r of --framework-args is 'x'; give a rank"),
        ("--lora_r 0", "--lora_r of --framework-args is '0'; give a rank"),
        ("--lora_r", "--lora_r of --framework-args is ''; give a rank"),
        ("--lora_r 8 --lora_dropout 1.5", "--lora_dropout of --framework-args is '1.5'"),
        ("--lora_r 8 --lora_target_modules", "give all-linear, or names of modules"),
        ("--lora_r 8 --lora_foo 3", "--framework-args has --lora_foo; adapters have --lora_r, "),
        ("--lora_r 8 --load_in_4bit true", "--load_in_4bit of --framework-args is 'true'; give no value"),
        ("--optim adamw_what", "give one of adamw_torch, adamw_bnb_8bit"),
    ],
)
def test_what_no_adapter_has_is_refused(words: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        split_adapters(words.split())
    assert sentence in str(refused.value)


def test_fields_of_deepspeed_s_configuration_stay_with_it() -> None:
    words = ["zero_optimization.stage=2", "--lora_target_modules", "q_proj", "steps_per_print=3", "--lora_r", "16"]
    fields, adapters = split_adapters(words)
    assert fields == ["zero_optimization.stage=2", "steps_per_print=3"]
    assert adapters == ["--lora_target_modules", "q_proj", "--lora_r", "16"]


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match="give their rank, too"):
        check_adapters(["--load_in_4bit"], "")
    for words in (["--lora_r", "8", "--load_in_8bit"], ["--optim", "paged_adamw_8bit"]):
        for sharding in ("FSDP2", "DeepSpeed"):
            with pytest.raises(InputError, match=f"not sharded by {sharding}"):
                check_adapters(words, sharding)
