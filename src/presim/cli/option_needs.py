"""Options that act only beside others: given alone they would change nothing, so they are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from presim.errors import InputError

_Values = Mapping[str, Any]


class Need(NamedTuple):
    """Options of a verb that act only if other options have some values."""

    flags: str  # separated by spaces
    acts: Callable[[_Values], bool]  # of the values of all options, by their names in Python
    condition: str  # what was to be given, as `without --turns`, or what must not be, as `beside --trace`
    reason: str = ""

    def sentence(self, flag: str) -> str:
        """Why an option is refused, and what to do."""
        advice = f"give both, or leave out {flag}" if self.condition.startswith("without") else "leave out one of them"
        return f"{flag} has no effect {self.condition}{self.reason and f', {self.reason}'}; {advice}"


def _set(name: str) -> Callable[[_Values], bool]:
    return lambda values: bool(values[name])


def _absent(*names: str) -> Callable[[_Values], bool]:
    return lambda values: not any(values[name] for name in names)


def _arrivals(kind: str) -> Callable[[_Values], bool]:
    return lambda values: bool(values["arrivals"] == kind)


_DRAWN = "--rate --input --output --arrivals --burstiness --burst --ramp-to --shared-prefix --groups --turns --think"
_LOAD = (
    Need(
        f"{_DRAWN} --adapters --structured --trace --workload --requests --concurrency",
        lambda values: values["listen"] is None,
        "beside --listen",
        "whose clients send the load",
    ),
    Need(
        f"{_DRAWN} --adapters --structured",
        _absent("trace", "saved"),
        "beside --trace or --workload",
        "which have their own",
    ),
    Need("--trace", _absent("saved"), "beside --workload"),
    Need("--trace-unit --trace-block-tokens", _set("trace"), "without --trace"),
    Need("--burstiness", _arrivals("gamma"), "without --arrivals gamma"),
    Need("--burst", _arrivals("burst"), "without --arrivals burst"),
    Need("--ramp-to", _arrivals("ramp"), "without --arrivals ramp"),
    Need("--arrivals", _set("rate"), "without --rate", "as all requests arrive at once"),
    Need("--groups", _set("shared_prefix"), "without --shared-prefix"),
    Need("--think", lambda values: values["turns"] > 1, "without --turns"),
    Need(
        "--grammar-ms",
        lambda values: bool(values["structured"] or values["trace"] or values["saved"] or values["listen"] is not None),
        "without --structured",
    ),
)


def _sglang(values: _Values) -> bool:
    return bool((values["scheduler"] or values["kernels"]) == "sglang")


_DRAFTS = (Need("--draft-tokens --acceptance", _set("speculative"), "without --speculative"),)
_ENGINE = (
    *_DRAFTS,
    Need("--draft-model", lambda values: values["speculative"] == "draft", "without --speculative draft"),
    Need("--max-prefill-tokens --scheduler-recv-interval", _sglang, "without --scheduler sglang"),
    Need("--prefill-schedule-interval", lambda values: not _sglang(values), "beside SGLang's scheduler"),
    Need("--lora-rank", _set("max_loras"), "without --max-loras"),
    Need("--kv-host-bandwidth", _set("kv_host"), "without --kv-host"),
    Need("--kv-disk-bandwidth", _set("kv_disk"), "without --kv-disk"),
)
_ENGINES_TOGETHER = (
    Need("--prefill-tp", _set("prefill_replicas"), "without --prefill-replicas"),
    Need("--kv-shared-bandwidth", _set("kv_shared"), "without --kv-shared"),
)
_FLEET = (
    *_ENGINES_TOGETHER,
    Need("--prefill-gpu", _set("prefill_replicas"), "without --prefill-replicas"),
    Need("--slo-percentile", _set("slo"), "without --slo"),
    Need("--replicas", _absent("autoscale"), "beside --autoscale", "which says how many engines there are"),
    Need("--scale-on --scale-target --scale-interval --cooldown --drain", _set("autoscale"), "without --autoscale"),
    Need("--on-failure --detect", _set("mtbf"), "without --mtbf"),
    Need("--start-up", lambda values: bool(values["autoscale"] or values["mtbf"]), "without --autoscale or --mtbf"),
    Need("--speed", lambda values: values["listen"] is not None, "without --listen"),
)


def _unless_style(option: str, *styles: str) -> Callable[[_Values], bool]:
    """Whether a switch is on, as by default, or may be off since the data-parallel style is none of these."""
    return lambda values: values[option] or values["data_style"] not in styles


def _recomputes(values: _Values) -> bool:
    """Whether blocks are recomputed, or another source than options may say so."""
    return values["recompute"] == "full" or any(values[source] for source in ("plan_file", "launch", "like"))


NEEDS: dict[str, tuple[Need, ...]] = {
    "calibrate serving": (*_ENGINE, *_ENGINES_TOGETHER),
    "compose": (
        Need(
            "--no-overlap",
            _unless_style("overlap", "fsdp2", "hsdp"),
            "beside --dp-style fsdp2 or hsdp",
            "which overlap always",
        ),
        Need(
            "--no-reshard",
            _unless_style("reshard", "ddp", "zero1"),
            "beside --dp-style ddp or zero1",
            "which shard no parameters",
        ),
        Need("--recompute-blocks", _recomputes, "without --recompute full"),
    ),
    "serve": (*_LOAD, *_ENGINE, *_FLEET),
    "run": (Need("--wider", _set("save"), "without --save"),),
    "simulate": (Need("--jitter-draws --seed", _set("jitter"), "without --jitter"),),
    "prefill": (Need("--requests", _set("trace"), "without --trace"),),
    "deploy": (
        *_DRAFTS,
        Need("--router", _set("folder"), "without --write"),
        Need("--groups", _set("shared_prefix"), "without --shared-prefix"),
    ),
    "rl": (
        Need(
            "--sglang-release",
            lambda values: values["engine_kernels"] == "sglang" or bool(values["recipe"]),
            "without --kernels sglang",
            "whose release it is",
        ),
        Need("--reward-workers", lambda values: values["reward_seconds"] != "0", "without --reward-seconds"),
        Need(
            "--sleep-level",
            lambda values: values["placement"] != "separate",
            "beside --placement separate",
            "whose engines have GPUs of their own",
        ),
    ),
    "training": (
        Need("--failures", lambda values: values["mtbf_hours"] is None, "beside --mtbf", "which says how often"),
        Need(
            "--repair --elastic",
            lambda values: values["spares"] is not None,
            "without --spares",
            "as there is always a spare node",
        ),
    ),
}


def check_needs(context: click.Context) -> None:
    """Refuse options of a verb that would change nothing.

    Raises:
        InputError: an option was given without those that it acts with.
    """
    verb = context.command_path.partition(" ")[2]
    names = {flag: option.name for option in context.command.params for flag in (*option.opts, *option.secondary_opts)}
    for need in NEEDS.get(verb, ()):
        for flag in need.flags.split():
            name = names[flag] or ""
            is_asked_for = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if is_asked_for and not need.acts(context.params):
                raise InputError(need.sentence(flag))
