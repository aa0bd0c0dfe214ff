"""The work of extension kernels, from their operators' tensors, scalars and schemas."""

from __future__ import annotations

from presim.capture.reading.classify import classify_launch
from presim.capture.reading.launch_operators import parse_operator
from presim.capture.reading.log import parse
from presim.trace.signatures import (
    NF4,
    TINYGEMM,
    Attention,
    Elementwise,
    Gemm,
    Index,
    Signature,
    Softmax,
)

CACHE = "BFloat16[28583;16;8;128]"


def launched(name: str, inputs: str, rest: str, kernel: str = "kernel", blocks: int = 64) -> Signature:
    operator = parse_operator(parse(f"op name={name} in={inputs} {rest}"))
    return classify_launch(parse(f"kernel name={kernel} grid={blocks},1,1 block=64,1,1"), operator, 1.0)


def attention(queries: int, sequences: int, longest: int, kernel: str = "FlashAttnFwdSm90flash") -> Signature:
    inputs = (
        f"BFloat16[{queries};32;128],{CACHE},{CACHE},BFloat16[{queries};32;128],Int[{sequences + 1}],Int[{sequences}]"
    )
    return launched("_vllm_fa3_C::fwd", inputs, f"out= args=1,{longest},1,-1,-1,1,0,0,1,0", kernel)


def test_paged_attention_reads_its_longest_sequence_and_not_the_cache() -> None:
    decode = attention(64, 64, 1021)
    assert isinstance(decode, Attention)
    assert (decode.batch, decode.heads, decode.kv_heads, decode.head_dim) == (64, 32, 8, 128)
    assert (decode.q_len, decode.kv_len, decode.causal, decode.paged) == (1, 1021, True, True)


def test_prompts_of_a_batch_share_its_tokens_evenly() -> None:
    prefill = attention(6400, 64, 100)
    assert isinstance(prefill, Attention)
    assert (prefill.q_len, prefill.kv_len) == (100, 100)


def test_combining_split_keys_is_not_attention() -> None:
    assert isinstance(attention(64, 64, 1021, "FlashAttnFwdCombine"), Elementwise)


def test_only_new_keys_and_values_are_written_to_the_cache() -> None:
    inputs = f"BFloat16[64;8;128],BFloat16[64;8;128],{CACHE},{CACHE},Long[64],Float[],Float[]"
    found = launched("_C_cache_ops::reshape_and_cache_flash", inputs, "out= args= writes=2,3")
    rows = 2 * 64 * 8 * 128 * 2
    assert isinstance(found, Index)
    assert (found.bytes_read, found.bytes_written) == (rows + 64 * 8, rows)


def test_arguments_named_result_in_a_schema_are_written_and_not_read() -> None:
    found = launched("_C::silu_and_mul", "BFloat16[64;100],BFloat16[64;200]", "out= args= writes=0!")
    assert isinstance(found, Elementwise)
    assert (found.bytes_read, found.bytes_written) == (25600, 12800)


def test_mutated_arguments_of_a_schema_are_read_and_written() -> None:
    found = launched("_C::turn", "BFloat16[64;100],BFloat16[64;100]", "out= args= writes=0,1")
    assert isinstance(found, Elementwise)
    assert (found.bytes_read, found.bytes_written) == (25600, 25600)


def test_rotary_embedding_reads_a_row_of_its_table_for_each_position() -> None:
    inputs = "Long[64],BFloat16[64;4096],BFloat16[64;1024],BFloat16[8192;128]"
    found = launched("_C::rotary_embedding", inputs, "out= args= writes=1,2")
    turned = 2 * 64 * 5120
    assert isinstance(found, Elementwise)
    assert (found.bytes_read, found.bytes_written) == (turned + 64 * 256 + 64 * 8, turned)


def test_four_bit_weights_are_dequantised_scales_first() -> None:
    inputs = "BFloat16[1;2048;2048],Byte[2097152;1],Float[256],Byte[65536],Float[256],Float[]"
    weights = launched(
        "bitsandbytes::gemm_4bit", inputs, "out=BFloat16[1;2048;2048] args=", "kDequantizeBlockwise", 8192
    )
    scales = launched("bitsandbytes::gemm_4bit", inputs, "out=BFloat16[1;2048;2048] args=", "kDequantizeBlockwise", 128)
    assert isinstance(weights, Elementwise)
    assert isinstance(scales, Elementwise)
    assert (weights.bytes_read, weights.bytes_written) == (2048 * 2048 // 2 + 65536 * 4, 2048 * 2048 * 2)
    assert (scales.bytes_read, scales.bytes_written) == (65536, 4 * 65536)


def test_few_rows_are_multiplied_with_packed_weights_in_one_kernel() -> None:
    inputs = "BFloat16[1;1;2048],Byte[8388608;1],Float[1024],Byte[262144],Float[256],Float[]"
    found = launched("bitsandbytes::gemm_4bit", inputs, "out=BFloat16[1;1;8192] args=", "kgemm_4bit_inference_naive")
    assert isinstance(found, Gemm)
    assert (found.m, found.n, found.k, found.b_dtype, found.scaling) == (1, 8192, 2048, "uint4", NF4)


def test_packed_4_bit_weights_are_multiplied_and_not_read_only() -> None:
    inputs = "BFloat16[64;8192],Int[1024;64;32;4],BFloat16[64;8192;2]"
    found = launched("aten::_weight_int4pack_mm", inputs, "out=BFloat16[64;8192] args=128", "tinygemm_m16n8k16")
    assert isinstance(found, Gemm)
    assert (found.m, found.n, found.k, found.b_dtype, found.scaling) == (64, 8192, 8192, "uint4", TINYGEMM)


def test_engines_kernels_unpack_weights_while_they_multiply() -> None:
    """Machete's and Marlin's packed weights have shapes of their own; copies beside the kernel are no products."""
    inputs = "BFloat16[16;4096],Int[512;14336],BFloat16[32;14336]"
    for name, kernel in (("machete_mm", "cutlass::machete::MacheteCollectiveMma"), ("marlin_gemm", "marlin::Marlin")):
        found = launched(f"_C::{name}", inputs, "out=BFloat16[16;14336] args=", kernel)
        assert isinstance(found, Gemm)
        assert (found.m, found.n, found.k, found.b_dtype) == (16, 14336, 4096, "uint4")
        assert found.scaling == name.partition("_")[0]
        assert not isinstance(launched(f"_C::{name}", inputs, "out=BFloat16[16;14336] args=", "elementwise"), Gemm)


def test_fp4_products_have_two_values_a_byte() -> None:
    inputs = "BFloat16[4;4096],Byte[4;2048],Byte[4096;2048],Float8_e4m3fn[128;256],Float8_e4m3fn[4096;256],Float[]"
    found = launched("_C::cutlass_scaled_fp4_mm", inputs, "out= args= writes=0!", "cutlass::GemmUniversal")
    assert isinstance(found, Gemm)
    assert (found.m, found.n, found.k, found.dtype, found.scaling) == (4, 4096, 4096, "float4_e2m1fn_x2", "block")


def test_scaled_products_have_factors_of_rows_or_of_blocks() -> None:
    """CUTLASS's product in vLLM: several factors in a row of the left matrix are those of blocks of 128."""
    for scales, scaling in (("Float[64;1],Float[1;512]", "outer"), ("Float[64;16],Float[16;4]", "block")):
        inputs = f"BFloat16[64;512],Float8_e4m3fn[64;2048],Float8_e4m3fn[2048;512],{scales}"
        found = launched("_C::cutlass_scaled_mm", inputs, "out= args= writes=0!", "cutlass_kernel")
        assert isinstance(found, Gemm)
        assert (found.m, found.n, found.k, found.scaling) == (64, 512, 2048, scaling)


def test_latent_attention_has_one_head_of_keys_in_two_parts() -> None:
    """DeepSeek's decoding: 64 dimensions with rotary embedding, and 512 that are keys and values."""
    inputs = "BFloat16[8;128;64],BFloat16[99;16;1;64],BFloat16[99;16;1;512],BFloat16[8;128;512],Int[9],Int[8]"
    found = launched("_vllm_fa3_C::fwd", inputs, "out= args=1,700,1,-1,-1,1,0,0,1,0", "FlashAttnFwdSm90flash")
    assert isinstance(found, Attention)
    assert (found.heads, found.kv_heads, found.head_dim, found.v_head_dim) == (128, 1, 576, 512)
    cache = "BFloat16[8;512],BFloat16[8;64],BFloat16[99;16;576],Long[8]"
    written = launched("_C_cache_ops::concat_and_cache_mla", cache, "out= args= writes=2")
    assert isinstance(written, Index)
    assert written.bytes_written == 8 * 576 * 2


def test_the_product_of_few_rows_and_the_choice_of_experts_are_one_kernel_each() -> None:
    inputs = "BFloat16[8;2112],BFloat16[8;7168],BFloat16[7168;2112]"
    product = launched("_C::dsv3_fused_a_gemm", inputs, "out= args= writes=0!")
    assert isinstance(product, Gemm)
    assert (product.m, product.n, product.k) == (8, 2112, 7168)
    chosen = launched("_moe_C::grouped_topk", "Float[8;256],Float[256]", "out=Float[8;8],Int[8;8] args=")
    assert isinstance(chosen, Softmax)
    assert (chosen.bytes_read, chosen.row) == (8 * 256 * 4, 256)
