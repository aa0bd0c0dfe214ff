"""``megatron_gpt.py`` with the kernels that newer releases run a rank's experts with (``megatron_grouped_mlp.py``).

Takes the options of ``megatron_gpt.py``.
"""

from __future__ import annotations

import megatron_gpt
import megatron_grouped_mlp

if __name__ == "__main__":
    megatron_grouped_mlp.install()
    megatron_gpt.main()
