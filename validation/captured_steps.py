"""Compares composed engine steps with steps captured from vLLM's model runner, batch by batch.

    python validation/captured_steps.py MODEL [MODEL...] [--gpu ID] [--tp N] [--expert-weights TYPE] [--eager]
        [--out FILE]

MODEL is as in `presim serve`. Steps are captured from vLLM (`make vllm`) the first time, in minutes, and kept in the
user's cache. Device times are of one step that nothing overlaps, from the model's first kernel until the sampled tokens
are on the host. Held-out batches are not fitted: "interpolated" is what the captured step model says of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from presim.cli.script import sentences
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.model_lookup import config_of, from_config
from presim.serving.serving_plan import ServingPlan, Weights
from presim.serving.steps.captured_step_times import CapturedBatch, Sample, check, checks, with_captured
from presim.serving.steps.times import build
from presim.system.files import write_file
from presim.verbs.capture_steps import captured_steps


def section(model: str, plan: ServingPlan, gpu: str) -> str:
    """A model's batches as a table, and the errors in a sentence."""
    config, name = config_of(model)
    engine = build(from_config(config, name), plan, choose_cluster(gpu=gpu, world_size=plan.gpus))
    found = captured_steps(engine, config, "captured", print)
    mine = checks(engine, found)
    theirs = [check(sample, engine.times, engine.times) for sample in found.samples]
    rows = [row(one, other) for one, other in zip(mine, theirs)]
    held = [one for one in mine if one.sample.held_out]
    apart, off = (np.abs([one.error for one in some]) for some in (theirs, held))
    over = with_captured(engine, found).overheads
    graphs = "CUDA graphs and torch.compile" if plan.cuda_graphs else "eager"
    return "\n".join(
        [
            f"## {name}, {plan.text}, {gpu}, {graphs}",
            "",
            f"Composed device times differ from captured ones by {np.median(apart):.1%} in the median and "
            f"{apart.max():.1%} at most. Interpolated ones of {len(held)} held-out batches differ by "
            f"{np.median(off):.1%} and {off.max():.1%}. Host time before a step: {over.host_us:,.0f} us + "
            f"{over.host_sequence_us:.1f} us a sequence; after it: {over.back_us:,.0f} us + "
            f"{over.back_sequence_us:.1f} us a sequence.",
            "",
            "| batch | held out | host before | launches | host after | captured | interpolated | composed |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def row(mine: CapturedBatch, theirs: CapturedBatch) -> str:
    """A batch: times in ms, errors against the captured device time."""
    sample = mine.sample
    host = (sample.prepare_ns, sample.launch_ns, sample.finish_ns)
    cells = [
        text(sample),
        "yes" if sample.held_out else "",
        *(f"{ns / 1e6:.2f}" for ns in host),
        f"{mine.captured_ns / 1e6:.2f}",
        f"{mine.interpolated_ns / 1e6:.2f} ({mine.error:+.1%})",
        f"{theirs.interpolated_ns / 1e6:.2f} ({theirs.error:+.1%})",
    ]
    return "| " + " | ".join(cells) + " |"


def text(sample: Sample) -> str:
    """A batch in a few words."""
    parts = [f"{len(sample.decodes)} decodes of {sample.decodes[0]:,}"] if sample.decodes else []
    parts += [f"prompts of {'+'.join(f'{tokens:,}' for tokens, _ in sample.prefills)}"] if sample.prefills else []
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--gpu", default="h100-sxm")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--expert-weights", choices=get_args(Weights))
    parser.add_argument("--max-model-len", type=int, default=32768)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    with sentences():
        plan = ServingPlan(
            tp=options.tp,
            expert_weights=options.expert_weights,
            max_model_len=options.max_model_len,
            async_scheduling=False,
            cuda_graphs=not options.eager,
        )
        page = "\n\n".join(section(model, plan, options.gpu) for model in options.models) + "\n"
        if options.out is None:
            print(page)
        else:
            write_file(options.out, page.encode())


if __name__ == "__main__":
    main()
