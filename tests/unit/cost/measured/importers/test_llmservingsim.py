"""LLMServingSim's tables: prompts in chunks, of one GPU of several."""

from __future__ import annotations

from pathlib import Path

from presim.cost.measured.importers import llmservingsim
from presim.cost.measured.importers.find import reader_of
from presim.cost.measured.measured_rows import Intake
from presim.trace.signatures import Attention
from support.files import write_lines


def test_llmservingsims_prompts_split_over_gpus_and_no_decoding(tmp_path: Path) -> None:
    columns = (
        "time_stats.attn_prefill.median,n_embd,n_q_head,n_kv_head,num_tensor_parallel_workers,batch_size,"
        "prefill_chunk_size,kv_cache_size,is_prefill,attention_backend"
    )
    row = "0.03,8192,64,8,4,1,1024,512,True,FLASH_ATTENTION"
    table_of = tmp_path / "H100/meta/Llama/tp4/attention.csv"
    write_lines(table_of, columns, row, row.replace("True", "False"), row.replace("1024", ""))
    assert reader_of(tmp_path) == ("llmservingsim", llmservingsim)
    intake = Intake().take(llmservingsim.read(tmp_path))
    (found,) = intake.accepted
    assert found.signature == Attention(
        "forward", 1, 16, 2, 1024, 1536, 128, 128, True, "bfloat16", "flash3", paged=True
    )
    assert (found.gpu, found.duration_ns) == ("h100-sxm", 30_000)
    assert sorted(intake.rejected.values()) == [1, 1]
