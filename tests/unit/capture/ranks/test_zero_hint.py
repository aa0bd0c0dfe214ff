"""Whether a script's text singles out rank 0."""

from __future__ import annotations

import pytest

from presim.capture.ranks.zero_hint import singles_out_rank_0


@pytest.mark.parametrize(
    "source",
    [
        "if dist.get_rank() == 0: print(loss)",
        "master = int(os.environ['RANK']) == 0",
        "if 0 == rank: save()",
        "print(loss) if not args.global_rank else None",
        "if rank != 0:\n    logger.disabled = True",
        "if accelerator.is_main_process: print(1)",
        "if trainer.is_world_process_zero(): log()",
        "verbose = int(os.environ['SLURM_PROCID']) == 0",
        "if master_process: print(1)",
        "if is_main and step % 10 == 0: print(loss)",
        "if step % 10 == 0 and rank == 0: print(loss)",
    ],
)
def test_rank_0_is_singled_out(source: str) -> None:
    """Idioms of training scripts."""
    assert singles_out_rank_0(source)


@pytest.mark.parametrize(
    "source",
    [
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        "if local_rank == 0: print(1)",
        "if step == 0: print(loss)",
        "if options.log and rank == 0: print(loss)",
        "sampler = DistributedSampler(data, rank=rank)",
        "model = main(process)",
        "tensor.matrix_rank(x) == 3",
        "print 'not Python'",
        "\0",
    ],
)
def test_it_is_not(source: str) -> None:
    """Other scripts, and text that is no Python."""
    assert not singles_out_rank_0(source)


@pytest.mark.parametrize(("args", "is_on"), [(("--log",), True), (("--log=1",), True), (("--logs", "log"), False)])
def test_a_switch_counts_where_its_option_is_given(args: tuple[str, ...], is_on: bool) -> None:
    """The main example asks for its rank only with its option ``--log``."""
    assert singles_out_rank_0("if options.log and dist.get_rank() == 0: print(loss)", args) == is_on


def test_names_of_options_are_those_of_python() -> None:
    """Dashes become underscores, as argparse has it."""
    assert singles_out_rank_0("if args.log_loss and rank == 0: print(loss)", ["--log-loss", "10"])
