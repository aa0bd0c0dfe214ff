"""Options of vLLM and SGLang that a user of ``presim serve`` may give: what presim calls them, or that it has none."""

from __future__ import annotations

import click

_NAMED = {
    "--tensor-parallel-size": "--tp",
    "--tensor-parallel": "--tp",
    "--tp-size": "--tp",
    "-tp": "--tp",
    "--pipeline-parallel-size": "--pp",
    "--pp-size": "--pp",
    "-pp": "--pp",
    "--data-parallel-size": "--dp with experts, else --replicas",
    "--dp-size": "--dp with experts, else --replicas",
    "-dp": "--dp with experts, else --replicas",
    "--decode-context-parallel-size": "--dcp",
    "-dcp": "--dcp",
    "--ep-size": "--ep, with the ranks of --tp and --dp",
    "--kv-cache-dtype": "--kv",
    "--quantization": "--weights; without it the checkpoint's own type",
    "--scheduling-policy": "--policy",
    "--num-gpu-blocks-override": "--num-gpu-blocks",
    "--context-length": "--max-model-len",
    "--max-running-requests": "--max-num-seqs",
    "--chunked-prefill-size": "--max-num-batched-tokens",
    "--mem-fraction-static": "--gpu-memory-utilization",
    "--page-size": "--block-size",
    "--max-lora-rank": "--lora-rank",
    "--speculative-config": "--speculative METHOD --draft-tokens N",
    "--speculative-algorithm": "--speculative METHOD",
    "--speculative-num-draft-tokens": "--draft-tokens",
    "--kv-offloading-size": "--kv-host",
    "--cpu-offload-gb": "nothing: weights in host memory are not modelled",
    "--disaggregation-mode": "--prefill-replicas",
    "--request-rate": "--rate",
    "--max-concurrency": "--concurrency",
    "--num-prompts": "--requests",
    "--random-input-len": "--input",
    "--random-output-len": "--output",
    "--goodput": "--slo",
    "--model": "its name or config.json as the first word",
    "--model-path": "its name or config.json as the first word",
}
_NOT_MODELLED = {
    "--prefill-context-parallel-size": "prefill context parallelism is not modelled; leave it out, or use "
    "--prefill-replicas for more GPUs that prefill",
    "-pcp": "prefill context parallelism is not modelled; leave it out, or use --prefill-replicas for more GPUs that "
    "prefill",
    "--attn-cp-size": "prefill context parallelism is not modelled; leave it out",
    "--enable-dbo": "dual-batch overlap is not modelled; leave it out, and expect a longer prediction",
    "--enable-two-batch-overlap": "two-batch overlap is not modelled; leave it out, and expect a longer prediction",
    "--enable-eplb": "expert load balancing is not modelled; leave it out, and expect a longer prediction",
    "--enable-mixed-chunk": "mixed chunks of SGLang are not modelled; leave it out",
    "--kv-transfer-config": "connectors are not read; use --prefill-replicas or --kv-host for what they do",
}


def hint(flag: str) -> str | None:
    """What to do instead of an engine's option; None: it is no engine's option that is known here.

    >>> hint("--tensor-parallel-size")
    "--tensor-parallel-size is the engine's name: write --tp"
    """
    from presim.serving.launching.launch_words import FLAGS

    word = flag.replace("_", "-")
    if (own_name := _NAMED.get(word) or FLAGS.get(word)) is not None:
        return f"{flag} is the engine's name: write {own_name}"
    return f"{flag}: {_NOT_MODELLED[word]}" if word in _NOT_MODELLED else None


def parsed(command: click.Command, context: click.Context, words: list[str]) -> list[str]:
    """The words that a command's parser leaves.

    Raises:
        click.UsageError: an option is the engine's, with what to do instead.
    """
    try:
        return click.Command.parse_args(command, context, list(words))
    except click.NoSuchOption as error:
        flags = [word.partition("=")[0] for word in words if word.startswith(error.option_name)]  # -pcp is read as -p
        text = next((text for flag in flags if (text := hint(flag)) is not None), None)
        if text is None:
            raise
        raise click.UsageError(text, context) from error
