"""Two steps of a model of the zoo; what PyTorch's own counter found in the second goes to a file.

usage: count_flops.py MODEL BATCH FILE
"""

import json
import runpy
import sys
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

ZOO = Path(__file__).parents[3] / "examples" / "model_zoo.py"


def main() -> None:
    """The step of the example, with the counter around it."""
    name, batch, file = sys.argv[1:]
    with torch.device("cuda"):
        model, batches = runpy.run_path(str(ZOO))["TASKS"][name](int(batch))
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    for _ in range(2):
        with FlopCounterMode(display=False) as counter:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(**next(batches))
            loss.backward()
        totals = {str(operator): flops for operator, flops in counter.get_flop_counts()["Global"].items()}
        Path(file).write_text(json.dumps(totals))
        optimizer.step()


main()
