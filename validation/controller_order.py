"""Compares the order of phases of a simulated step with that of verl's own controller, run with fake workers.

    python validation/controller_order.py VERL

VERL is a checkout of verl (its file verl/trainer/ppo/ray_trainer.py). Its loop, `RayPPOTrainer.fit`, is compiled as it
is, and all that it calls is a fake which returns a fake: workers, engines, batches. The loop names its phases to
`marked_timer`, in whose order they are compared. Writes `results/controller-order.md`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.build import build_job
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.studies.validation.error_summary import markdown
from presim.system.files import read_text, write_file

RESULT = Path(__file__).parent / "results" / "controller-order.md"
TRAINER = Path("verl") / "trainer" / "ppo" / "ray_trainer.py"
# verl's name of a phase, and presim's; what verl calls reward is the collection of what was computed beside rollouts.
PHASES = {
    "gen": "rollout",
    "reward": "reward model",
    "old_log_prob": "old log-probabilities",
    "RefPolicy": "reference log-probabilities",
    "values": "values",
    "update_critic": "critic update",
    "update_actor": "update",
    "update_weights": "weight sync",
}
ABSENT = ("rm_scores", "rollout_log_probs", "routed_experts")  # tensors of a batch
JOBS = {
    "grpo": {"algorithm": "grpo", "reference": True},
    "grpo without reference": {"algorithm": "grpo", "reference": False},
    "ppo with a reward model": {"algorithm": "ppo", "reference": True, "reward_model": True},
}


def controller_phases(checkout: Path, *, uses_critic: bool, uses_reference: bool, uses_reward_model: bool) -> list[str]:
    """Names of the phases of a step of verl's loop, in their order.

    Raises:
        InputError: the checkout has no such loop.
    """
    module = ast.parse(read_text(checkout / TRAINER, "name a checkout of verl"))
    loops = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == "fit"]
    if len(loops) != 1:
        raise InputError(f"{checkout / TRAINER} has {len(loops)} functions called fit; name another checkout of verl")
    (loop,) = loops
    loop.body = [node for node in loop.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    recorded: list[str] = []

    @contextlib.contextmanager
    def marked_timer(name: Any, seconds: dict[str, float], **_: Any) -> Iterator[None]:
        recorded.append(str(name))
        seconds[str(name)] = 0.0
        yield

    loaded = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name)}
    namespace: dict[str, Any] = {name: MagicMock() for name in loaded if name not in dir(__builtins__)}
    namespace |= {"marked_timer": marked_timer, "pprint": lambda text: None}
    namespace["Role"].RefPolicy = "RefPolicy"
    namespace["extract_reward"].return_value = (MagicMock(), {})
    namespace["should_save_ckpt_esi"].return_value = False
    namespace["DataProto"].from_single_dict.return_value = _fake_batch()
    exec(compile(ast.Module([loop], []), str(checkout / TRAINER), "exec"), namespace)  # verl's own loop
    namespace["fit"](_fake_trainer(uses_critic, uses_reference, uses_reward_model))
    return [name for name in recorded if name in PHASES]


def _fake_batch() -> MagicMock:
    """A fake of tensors by name: all are there but what is computed elsewhere, or not in each job."""
    batch = MagicMock()
    for names in (batch.batch, batch.batch.keys.return_value):
        names.__contains__.side_effect = lambda name: name not in ABSENT
    batch.union.return_value = batch.repeat.return_value = batch
    return batch


def _fake_trainer(uses_critic: bool, uses_reference: bool, uses_reward_model: bool) -> MagicMock:
    """A trainer of one batch whose settings are those of one step."""
    trainer = MagicMock(use_critic=uses_critic, use_reference_policy=uses_reference, use_rm=uses_reward_model)
    trainer.train_dataloader = [{}]
    trainer.total_training_steps = 1
    trainer._compute_old_log_prob.return_value = (MagicMock(), 0.0)
    trainer.config.trainer.get.return_value = None
    trainer.config.algorithm.get.return_value = None
    trainer.config.trainer.total_epochs = 1
    trainer.config.trainer.critic_warmup = trainer.config.trainer.save_freq = trainer.config.trainer.test_freq = 0
    trainer.config.global_profiler.steps = None
    trainer.config.algorithm.use_kl_in_reward = False
    trainer.max_steps_duration = 0.0
    trainer._load_checkpoint.side_effect = lambda: setattr(trainer, "global_steps", 0)
    return trainer


def simulated_phases(fields: dict[str, Any]) -> list[str]:
    """Phases of a simulated step of a small job, in their order."""
    request = RlRequest(model="qwen3-0.6b", prompts=8, samples=4, prompt_tokens="64", response="100", **fields)
    built = build_job(request, choose_cluster(gpu="h100-sxm", world_size=4))
    spans = simulate(built.job, built.prices).spans
    return [span.phase for span in sorted(spans, key=lambda span: span.start_s)]


def main() -> None:
    """Compare and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verl", type=Path)
    checkout = parser.parse_args().verl
    rows = []
    for name, fields in JOBS.items():
        has_model = bool(fields.get("reward_model"))
        controller = controller_phases(
            checkout, uses_critic=fields["algorithm"] == "ppo", uses_reference=bool(fields["reference"]),
            uses_reward_model=has_model,
        )  # fmt: skip
        # without a reward model, verl's phase has no work on GPUs
        phases = [PHASES[phase] for phase in controller if has_model or phase != "reward"]
        simulated = simulated_phases(fields)
        rows.append([name, ", ".join(phases), "the same" if simulated == phases else ", ".join(simulated)])
    date = datetime.datetime.now(datetime.UTC).date()
    page = f"""# Order of phases of verl's controller

{date}, by `python validation/controller_order.py VERL`, with verl at commit 1dda039b: its
own loop, `RayPPOTrainer.fit`, with fake workers, beside a simulated step.

{markdown(["job", "phases of verl's loop", "simulated"], rows)}
"""
    write_file(RESULT, page.encode())


if __name__ == "__main__":
    with sentences():
        main()
