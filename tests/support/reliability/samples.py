"""A good text of each kind of file that is a text, as small as its form allows."""

from __future__ import annotations

import json

BENCH = json.dumps(
    {
        "num_prompts": 40, "completed": 40, "request_rate": 10.0, "max_concurrency": None, "duration": 6.0,
        "total_input_tokens": 16000, "total_output_tokens": 1600, "request_throughput": 6.6, "output_throughput": 266.0,
        "mean_ttft_ms": 50.0, "median_ttft_ms": 45.0, "p99_ttft_ms": 100.0, "mean_tpot_ms": 9.0, "median_tpot_ms": 9.0,
        "p99_tpot_ms": 12.0, "mean_itl_ms": 9.0, "median_itl_ms": 9.0, "p99_itl_ms": 15.0,
    }
)  # fmt: skip
CONFIG = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "rope_theta": 500000.0,
    },
    indent=1,
)  # fmt: skip
CLUSTER = 'gpu = "h100-sxm"\nnodes = 16\ngpus_per_node = 8\n'
NETWORK = CLUSTER.replace("16", "4") + "\n[network]\nleaf_nodes = 2\noversubscription = 4.0\n"
GPU = 'base = "h100-sxm"\nname = "Our H100"\nmemory_MiB = 81559\nl2_MiB = 50\n'
NODE = 'base = "hgx-h100"\nname = "Ours"\nnics = 4\nexchange_GBps = 25\n'
BUDGETS = '[[job]]\nname = "llama"\nsimulate = ["job"]\nstep_time_s = 10.0\nmemory_GiB = 80\n'
CASES = (
    "id,framework,gpu,saved,step_time_s,peak_memory_GiB\none,presim,h100-sxm,job,1.0,50\ntwo,presim,h100-sxm,job,2.0,\n"
)
ASTRA = """topology: [ FullyConnected, Switch ]
npus_count: [ 4, 2 ]
bandwidth: [ 300.0, 50.0 ]
latency: [ 500.0, 1000.0 ]
"""
SIMAI = """6 2 0 2 5 A100
4 5
0 4 200Gbps 0.0005ms 0
1 4 200Gbps 0.0005ms 0
2 5 200Gbps 0.0005ms 0
3 5 200Gbps 0.0005ms 0
4 5 100Gbps 0.0005ms 0
"""
HTSIM = """Nodes 16
Tiers 2
Podsize 16
Tier 0
Downlink_speed_Gbps 200
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 1000
"""
SMI = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-15\nGPU1\tNV4\t X \t0-15\n"
NCCL = """<system version="1">
 <cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
  <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
   <gpu dev="0" rank="0"><nvlink target="0000:90" count="12" tclass="0x068000"/></gpu></pci>
  <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
   <gpu dev="1" rank="1"><nvlink target="0000:90" count="12" tclass="0x068000"/></gpu></pci>
 </pci></cpu>
</system>
"""
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{4 + second}.6805900,{374 + second},4{second}\n" for second in range(8)
)
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
    f"{5 * row},ChatGPT,47{row},1{row},49{row},Conversation log\n" for row in range(8)
)
MOONCAKE = "".join(
    json.dumps({"timestamp": 300 * row, "input_length": 1100, "output_length": 5 + row, "hash_ids": [0, 1, row]}) + "\n"
    for row in range(8)
)
SHAREGPT = json.dumps(
    [
        {"conversations": [{"from": "human", "value": "x" * 40}, {"from": "gpt", "value": "y" * (8 * row + 8)}]}
        for row in range(6)
    ],
    indent=1,
)
LLMSERVINGSIM = "".join(
    json.dumps({"input_toks": 300 + row, "output_toks": 5 + row, "arrival_time_ns": 300_000_000 * row}) + "\n"
    for row in range(8)
)
MIXED = CLUSTER + '\n[[groups]]\nname = "new"\ngpu = "b200"\nfirst_node = 8\nnodes = 8\n'
LOG = "".join(f"[rank0] step {row} loss 2.{row} step_time: 0.{120 + row} s tokens/s 1{row}000\n" for row in range(12))
SPACE = """about = "Ours: put {space} behind train.py"

[knobs.tensor]
values = [1, 2, 4]
words = ["--tp", "{}"]

[knobs.offload]
values = [false, true]
by_value = { true = ["--offload"] }

[[constraints]]
that = "world_size % tensor == 0 and (layers > 8 or not offload)"
why = "tensor-parallel ranks divide the GPUs"
"""
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
machine_rank: 0
use_cpu: false
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_reshard_after_forward: true
dynamo_config:
  dynamo_backend: INDUCTOR
"""
HOSTS = "# our nodes\nnode-0 slots=8\nnode-1 slots=8\n"
