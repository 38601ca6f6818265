"""Position in attention: absolute codes, additive bias tables and Shaw's vectors.

A relative scheme is a table over offsets (key position - query position), and
:func:`relative_attention` turns tables into attention.
"""

from relpos_lib.attention import choose_backend, relative_attention
from relpos_lib.bias import (
    AdditiveBias,
    ALiBi,
    ContentGatedBiasRPE,
    DirectionalBiasRPE,
    GatedBiasRPE,
    MultiplicativeBiasRPE,
    SimpleBiasRPE,
    T5BucketBias,
    alibi_slopes,
    t5_bucket,
)
from relpos_lib.block import RPETransformerBlock
from relpos_lib.cache import KeyValueCache
from relpos_lib.offsets import clip_table, relative_offsets, table_rows
from relpos_lib.rotary import rotary_encoding
from relpos_lib.shaw import RelativeMultiHeadAttention, RelativePositionEmbedding
from relpos_lib.sinusoidal import (
    LearnedAbsoluteEncoding,
    SinusoidalEncoding,
    sinusoidal_encoding,
)

__all__ = [
    "ALiBi",
    "AdditiveBias",
    "ContentGatedBiasRPE",
    "DirectionalBiasRPE",
    "GatedBiasRPE",
    "KeyValueCache",
    "LearnedAbsoluteEncoding",
    "MultiplicativeBiasRPE",
    "RPETransformerBlock",
    "RelativeMultiHeadAttention",
    "RelativePositionEmbedding",
    "SimpleBiasRPE",
    "SinusoidalEncoding",
    "T5BucketBias",
    "alibi_slopes",
    "choose_backend",
    "clip_table",
    "relative_attention",
    "relative_offsets",
    "rotary_encoding",
    "sinusoidal_encoding",
    "t5_bucket",
    "table_rows",
]
