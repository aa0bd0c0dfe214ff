"""Options of adapters for the programs with Hugging Face's layers, with the names that TRL gives them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from presim.errors import InputError

_OPTIMIZERS = ("adamw_torch", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit")
_SWITCHES = ("--load_in_4bit", "--load_in_8bit", "--use_bnb_nested_quant")
_RANK, _DROPOUT, _TARGETS, _OPTIMIZER = "--lora_r", "--lora_dropout", "--lora_target_modules", "--optim"
_NAMES = (_RANK, _DROPOUT, _TARGETS, *_SWITCHES, _OPTIMIZER)
_PREFIXES = ("--lora_", "--load_in_", "--bnb_", "--use_bnb_", "--use_peft", "--optim")


def split_adapters(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of `accelerate launch`, and those of adapters, each with its values as words of their own.

    Raises:
        InputError: an option of adapters is not known, or has no such value.
    """
    launcher_words: list[str] = []
    values_by_option: dict[str, list[str]] = {}
    receiver = launcher_words
    for word in arguments:
        name, separator, value = word.partition("=")
        if name.startswith(_PREFIXES):
            receiver = values_by_option.setdefault(name, [])
            receiver += [value] if separator else []
            continue
        receiver = launcher_words if word.startswith("--") or separator else receiver
        receiver.append(word)
    for name, values in values_by_option.items():
        _check_values(name, values)
    return launcher_words, [word for name, values in values_by_option.items() for word in (name, *values)]


def check_adapters(adapters: Sequence[str], sharding: str) -> None:
    """Check that options of adapters go together. ``sharding``: what shards parameters or states; empty: nothing.

    Raises:
        InputError: the rank is missing, bitsandbytes' weights would be sharded, or a package is not installed.
    """
    peft_option = next((word for word in adapters if word in _NAMES and word != _OPTIMIZER), None)
    if peft_option and _RANK not in adapters:
        raise InputError(f"{peft_option} of --framework-args is of adapters: give their rank, too, as {_RANK} 16")
    uses_bitsandbytes = any(word in (*_SWITCHES, *_OPTIMIZERS[1:]) for word in adapters)
    if uses_bitsandbytes and sharding:
        raise InputError(
            f"bitsandbytes' weights and optimizers are not sharded by {sharding}; use --framework hf --dp-style ddp, "
            "or leave --load_in_4bit, --load_in_8bit and --optim out"
        )
    packages = [*(["peft"] if peft_option else []), *(["bitsandbytes"] if uses_bitsandbytes else [])]
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{adapters[0]} needs {package}, which is not installed: pip install {package}")


def _check_values(name: str, values: Sequence[str]) -> None:
    if name not in _NAMES:
        raise InputError(f"--framework-args has {name}; adapters have {', '.join(_NAMES)}")
    text = " ".join(values)
    valid, hint = {
        _RANK: (text.isdecimal() and 0 < int(text) <= 1 << 20, "a rank, as 16"),
        _DROPOUT: (_is_share(text), "a probability below 1, as 0.05"),
        _TARGETS: (bool(values), "all-linear, or names of modules"),
        _OPTIMIZER: (text in _OPTIMIZERS, f"one of {', '.join(_OPTIMIZERS)}"),
    }.get(name, (not values, "no value"))
    if not valid:
        raise InputError(f"{name} of --framework-args is {text!r}; give {hint}")


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) < 1
    except ValueError:
        return False
