"""``megatron_predicting.py`` whose weights are in MXFP8 alone, as ``megatron_mxfp8.py`` has it; takes its options."""

from __future__ import annotations

import megatron_mxfp8
import megatron_predicting

if __name__ == "__main__":
    megatron_mxfp8.keep_nothing_beside()
    megatron_predicting.main()
