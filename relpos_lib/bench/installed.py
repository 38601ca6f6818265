"""Peers from other libraries, if they are installed: ``pip install relpos_lib[peers]``.

Their own code computes attention from our q, k and v: what projects them in their
modules is replaced by what hands out ours. So only attention is timed, and the numbers
can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from relpos_lib.bench.cases import Problem
from relpos_lib.bench.contenders import Contender, Pass, by_pair, by_pair_and_width
from relpos_lib.bias import t5_bucket
from relpos_lib.offsets import table_offsets


def installed_peers() -> list[Contender]:
    """Contenders of the libraries that are installed."""
    found = []
    if find_spec("transformers"):
        found += [
            _bias_peer("transformers-t5", transformers_t5),
            Contender(
                "transformers-relative-key",
                transformers_relative_key,
                by_pair_and_width,
                slowness=20.0,
                workloads=("shaw-keys",),
            ),
        ]
    if find_spec("x_transformers"):
        found.append(_bias_peer("x-transformers-t5", x_transformers_t5))
    return found


def _bias_peer(name: str, prepare: Callable[[Problem], Pass]) -> Contender:
    return Contender(name, prepare, by_pair(5, 8), slowness=8.0, workloads=("t5",))


def transformers_t5(problem: Problem) -> Pass:
    """T5's own attention; it does not scale scores, so the queries are scaled."""
    from transformers.models.t5 import modeling_t5

    _, heads, _, width = problem.query.shape
    config = modeling_t5.T5Config(
        d_model=heads * width,
        d_kv=width,
        num_heads=heads,
        dropout_rate=0.0,
        is_decoder=problem.causal,
    )
    config._attn_implementation = "eager"
    module = modeling_t5.T5Attention(
        config, has_relative_attention_bias=True, layer_idx=0
    )
    given = [Given(problem.query, 1 / math.sqrt(width)), Given(problem.key)]
    module.q, module.k, module.v = *given, Given(problem.value)
    module.o = nn.Identity()
    weight = _set_weight(module.relative_attention_bias, _by_bucket(problem))
    return _module_pass(module, problem, weight, "mask")


def transformers_relative_key(problem: Problem) -> Pass:
    """Shaw's keys as the ``relative_key`` of Wav2Vec2-BERT, BERT's idea with a clip."""
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as home

    table = problem.tables["key_table"]
    _, heads, _, width = problem.query.shape
    config = home.Wav2Vec2BertConfig(
        hidden_size=heads * width,
        num_attention_heads=heads,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=table.shape[0] // 2,
        right_max_position_embeddings=table.shape[0] // 2,
        attention_dropout=0.0,
    )
    config._attn_implementation = "eager"
    module = home.Wav2Vec2BertSelfAttention(config)
    module.linear_q, module.linear_k = Given(problem.query), Given(problem.key)
    module.linear_v, module.linear_out = Given(problem.value), nn.Identity()
    weight = _set_weight(module.distance_embedding, table)
    return _module_pass(module, problem, weight, "attention_mask")


def x_transformers_t5(problem: Problem) -> Pass:
    """T5's bias and attention of x-transformers."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import RelativePositionBias

    heads, length = problem.query.shape[1:3]
    bias = RelativePositionBias(scale=1.0, causal=problem.causal, heads=heads)
    weight = _set_weight(bias.relative_attention_bias, _by_bucket(problem))
    attend = Attend(causal=problem.causal, heads=heads)

    def run() -> Tensor:
        out: Tensor = attend(*problem.inputs, attn_bias=bias(length, length))[0]
        return out

    return Pass(run, _leaves(problem, weight))


class Given(nn.Module):
    """Stands for a projection: its output is known, (B, L, H·D)."""

    def __init__(self, tensor: Tensor, factor: float = 1.0) -> None:
        super().__init__()
        self.known = [tensor]  # in a list, or it would become a parameter
        self.factor = factor

    def forward(self, _: Tensor) -> Tensor:
        """The known tensor with its heads side by side."""
        joined = self.known[0].transpose(1, 2).flatten(2)
        return joined if self.factor == 1.0 else joined * self.factor


def _module_pass(
    module: nn.Module, problem: Problem, weight: Tensor, mask_name: str
) -> Pass:
    """A pass through a module of transformers; only the shape of its input counts."""
    batch, heads, length, width = problem.query.shape
    hidden = problem.query.new_empty(batch, length, heads * width)
    extra: dict[str, Tensor] = {}
    if problem.causal:
        lowest = torch.finfo(hidden.dtype).min
        extra[mask_name] = hidden.new_full((1, 1, length, length), lowest).triu(1)

    def run() -> Tensor:
        out: Tensor = module(hidden, **extra)[0]
        return out.view(batch, length, heads, width).transpose(1, 2)

    return Pass(run, _leaves(problem, weight))


def _by_bucket(problem: Problem) -> Tensor:
    """T5's own weights, (32, H), of the table that they fill."""
    table = problem.tables["bias_table"].detach()
    offsets = table_offsets(table.shape[1] // 2, device=table.device)
    weights = table.new_zeros(32, table.shape[0])
    weights[t5_bucket(offsets, bidirectional=not problem.causal)] = table.T
    return weights


def _set_weight(embedding: nn.Embedding, values: Tensor) -> Tensor:
    weight = nn.Parameter(values.detach().clone())
    embedding.weight = weight
    return weight


def _leaves(problem: Problem, weight: Tensor) -> list[Tensor]:
    """What wants gradients, with the module's weight in the place of our table."""
    if not problem.query.requires_grad:
        return []
    return [*problem.inputs, weight]
