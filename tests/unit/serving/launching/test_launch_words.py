"""Commands that start an engine, in words of `presim serve`: published forms, and what has no price."""

from __future__ import annotations

import pytest

from presim.errors import InputError
from presim.serving.launching.launch_words import LaunchWords, words_of
from presim.serving.launching.server_commands import read


def words(command: str, model: str | None = None, *, experts: bool = True, quantised: bool = False) -> LaunchWords:
    return words_of(read(command), model, lambda name: experts, lambda name: quantised)


@pytest.mark.parametrize(
    ("command", "model", "options", "unread"),
    [
        (
            "vllm serve zai-org/GLM-4.7-FP8 \\\n --tensor-parallel-size 4 --speculative-config.method mtp "
            "--speculative-config.num_speculative_tokens 1 --tool-call-parser glm47 --enable-auto-tool-choice",
            "zai-org/GLM-4.7-FP8",
            "--speculative mtp --draft-tokens 1 --tp 4",
            (),
        ),
        (
            "CUDA_VISIBLE_DEVICES=0,1 vllm serve a/MiniMax --tensor-parallel-size=2 --enable_expert_parallel "
            "--gpu-memory-utilization 0.95 --max-model-len 130k --moe-backend marlin && echo done",
            "a/MiniMax",
            "--tp 2 --ep --gpu-memory-utilization 0.95 --max-model-len 130000",
            ("--moe-backend marlin",),
        ),
        (
            "vllm serve --enforce-eager a/b -tp 8 -dp 2 --max-num-batched-tokens 8K --kv-cache-dtype fp8_e4m3",
            "a/b",
            "--dp 2 --kv fp8 --eager --tp 8 --max-num-batched-tokens 8192",
            (),
        ),
        (
            "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.22.0 --model a/b --max-model-len auto",
            "a/b",
            "--engine-version 0.22.0 --max-model-len auto",
            (),
        ),
        (
            "python3 -m sglang.launch_server --model-path a/b --tp 16 --dp-size 8 --enable-dp-attention --ep-size 16 "
            "--mem-fraction-static 0.85 --chunked-prefill-size 16384 --moe-a2a-backend deepep",
            "a/b",
            "--kernels sglang --ep --tp 2 --dp 8 --gpu-memory-utilization 0.85 --max-num-batched-tokens 16384",
            ("--moe-a2a-backend deepep",),
        ),
        (
            "sglang serve --model-path a/b --speculative-algorithm EAGLE --speculative-num-steps 3 "
            "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
            "a/b",
            "--kernels sglang --speculative mtp --draft-tokens 3",
            (),
        ),
        (
            "trtllm-serve a/b --tp_size 8 --ep_size 8 --max_batch_size 256 --max_num_tokens 4096 --backend pytorch "
            "--extra_llm_api_options more.yaml",
            "a/b",
            "--kernels trtllm --ep --tp 8 --max-num-seqs 256 --max-num-batched-tokens 4096",
            ("--extra-llm-api-options more.yaml",),
        ),
    ],
)
def test_published_commands_are_read(command: str, model: str, options: str, unread: tuple[str, ...]) -> None:
    assert words(command) == LaunchWords(model, tuple(options.split()), unread)


@pytest.mark.parametrize(("quantised", "options"), [(False, ("--weights", "fp8")), (True, ())])
def test_fp8_applies_to_checkpoints_of_16_bits(quantised: bool, options: tuple[str, ...]) -> None:
    assert words("vllm serve a/b --quantization fp8", quantised=quantised).options == options


def test_other_quantisations_are_those_of_the_checkpoint() -> None:
    assert words("vllm serve a/b -q awq_marlin") == LaunchWords("a/b", (), ())


@pytest.mark.parametrize("flag", ["--ep 8", "--ep-size 8", "--expert-parallel-size 8", "--enable-ep-moe"])
def test_names_of_expert_parallelism_in_sglang(flag: str) -> None:
    assert words(f"sglang serve --model-path a/b --tp 8 {flag}").options[2:] in (
        ("--ep", "--tp", "8"),
        ("--tp", "8", "--ep"),
    )


def test_ranks_without_experts_are_replicas() -> None:
    assert words("vllm serve a/b -dp 2", experts=False).options == ("--replicas", "2")


def test_a_model_beside_the_command_replaces_its_own() -> None:
    assert words("vllm serve a/b -tp 2", "folder") == LaunchWords("folder", ("--tp", "2"), ())


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("torchrun train.py", "--from starts no engine that is known here: 'torchrun train.py'; give a command of "),
        ("vllm serve 'a", "--from is no command: No closing quotation; correct "),
        ("vllm serve --port 80", "--from names no model; name it, or its config.json, as the first word"),
        ("vllm serve a b", "--from names two models, a and b; quote values with spaces"),
        ("vllm serve a --kv-cache-dtype turboquant_k8v4", "--kv-cache-dtype turboquant_k8v4 of --from has no price; "),
        ("vllm serve a --dtype float32", "--dtype float32 of --from has no price: engines are priced in 16 bits"),
        ("vllm serve a --max-num-seqs many", "--max-num-seqs of --from takes a number, as 8192 or 8k, not 'many'"),
        ("vllm serve a --speculative-config '{method'", "--speculative-config of --from is no JSON ("),
        ("vllm serve a --speculative-config '[]'", "--speculative-config of --from is JSON, but no object; correct it"),
        (
            """vllm serve a --speculative-config '{"method": "dflash", "model": "x"}'""",
            "drafting by 'dflash' of --from has no price; those by mtp, eagle, eagle3, ngram and a draft model have: ",
        ),
        (
            "python -m sglang.launch_server --model a --tp 6 --dp 4 --enable-dp-attention",
            "--dp-size 4 does not divide --tp-size 6 of --from; correct them",
        ),
        (
            "sglang serve --model-path a --speculative-algorithm TREE",
            "--speculative-algorithm tree of --from has no price; leave it out, and give --speculative",
        ),
    ],
)
def test_what_has_no_price_is_refused(command: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        words(command)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ("--language-model-only", ("--language-model-only",)),
        ('--limit-mm-per-prompt \'{"image":0,"video":0}\'', ("--language-model-only",)),
        ("--limit-mm-per-prompt.image 0 --limit-mm-per-prompt.video 0", ("--language-model-only",)),
        ("--limit-mm-per-prompt image=0,video=0", ("--language-model-only",)),
        ('--limit-mm-per-prompt \'{"image":2,"video":0}\'', ()),
        ("--limit-mm-per-prompt.video 0", ()),
    ],
)
def test_vllm_loads_no_encoder_where_no_request_has_an_image(limits: str, options: tuple[str, ...]) -> None:
    launch = words(f"vllm serve Qwen/Qwen3.6-27B {limits}")
    assert (launch.options, launch.unread) == (options, ())
