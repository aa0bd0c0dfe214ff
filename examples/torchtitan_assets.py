"""Write what torchtitan reads from disk: a tokenizer of bytes and a little text, so that it runs offline.

python examples/torchtitan_assets.py DIR, then give torchtitan
--hf_assets_path DIR/tokenizer --dataloader.dataset c4_test --dataloader.dataset_path DIR/c4_test
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SENTENCE = "A rehearsal is worth more than a repair, and costs less. "


def main() -> None:
    """The model's vocabulary is the model's own; the tokenizer may be smaller."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "torchtitan_assets")
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    (folder / "c4_test").mkdir(exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|begin|>", special=True), AddedToken("<|end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    special = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(special))
    lines = [json.dumps({"text": SENTENCE * (20 + number % 40)}) for number in range(2000)]
    (folder / "c4_test" / "data.jsonl").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
