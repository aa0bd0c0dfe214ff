"""Two steps of a model of the zoo; what PyTorch's own counter finds in the first goes to a file.

usage: count_flops.py MODEL BATCH FILE
"""

import contextlib
import json
import runpy
import sys
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

ZOO = Path(__file__).parents[3] / "examples" / "model_zoo.py"


def main() -> None:
    """The steps of the example, the first with the counter around it."""
    name, batch, file = sys.argv[1:]
    with torch.device("cuda"):
        model, batches = runpy.run_path(str(ZOO))["TASKS"][name](int(batch))
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4)
    counter = FlopCounterMode(display=False)
    for around in (counter, contextlib.nullcontext()):
        with around:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(**next(batches))
            loss.backward()
        totals = {str(operator): flops for operator, flops in counter.get_flop_counts()["Global"].items()}
        Path(file).write_text(json.dumps(totals))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
