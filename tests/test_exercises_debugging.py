"""The checks of the broken implementations accept right answers only."""

import ast

import torch
from torch import nn
from torch.nn.functional import dropout, pad, scaled_dot_product_attention

from book.tools.notebooks import BOOK, read
from relpos_lib import relative_attention, relative_offsets, table_rows
from relpos_lib.exercises.debugging import (
    check_cached_weights,
    check_directions,
    check_empty_rows,
    check_evaluation,
    check_far_values,
    check_half_rows,
    check_joined_heads,
    check_position_scores,
)
from tests.exercises import accepts, names, refuses, sees_gaps

CHECKS = {
    "SuspectAttention": check_evaluation,
    "suspect_bias": check_directions,
    "suspect_values": check_far_values,
    "suspect_weights": check_cached_weights,
    "suspect_rows": check_half_rows,
    "suspect_softmax": check_empty_rows,
    "suspect_join": check_joined_heads,
    "suspect_scores": check_position_scores,
}


def suspects():
    """The broken implementations as they stand on the page, by name."""
    cells = read(BOOK / "10-debug.ipynb").cells
    code = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code"]
    known = {}
    for node in [node for tree in code[1:] for node in tree.body]:
        imported = isinstance(node, (ast.Import, ast.ImportFrom))
        if imported or getattr(node, "name", "").lower().startswith("suspect"):
            exec(compile(ast.Module([node], []), "10-debug", "exec"), known)
    return {name: known[name] for name in known if name.lower().startswith("suspect")}


SUSPECTS = suspects()


def test_every_suspect_has_a_check():
    assert list(SUSPECTS) == list(CHECKS)


def test_what_a_probe_prints_is_folded():
    cells = read(BOOK / "10-debug.ipynb").cells
    asked = [k for k, c in enumerate(cells) if c.source.startswith("**What do you")]
    assert len(asked) == len(CHECKS)
    for k in asked:
        assert cells[k + 1].metadata.get("tags") == ["hide-output"]


class Attention(nn.Module):
    def __init__(self, bias_table, dropout_p):
        super().__init__()
        self.bias_table, self.dropout_p = nn.Parameter(bias_table), dropout_p

    def forward(self, q, k, v):
        dropout_p = self.dropout_p if self.training else 0.0
        return relative_attention(
            q, k, v, bias_table=self.bias_table, dropout_p=dropout_p
        )


class NeverDrops(Attention):
    def forward(self, q, k, v):
        return relative_attention(q, k, v, bias_table=self.bias_table)


class DropsInEvaluation(Attention):
    def forward(self, q, k, v):
        self.training = not self.training
        return super().forward(q, k, v)


class DropsTheOutput(Attention):
    def forward(self, q, k, v):
        out = relative_attention(q, k, v, bias_table=self.bias_table)
        return dropout(out, self.dropout_p, self.training)


class ForgetsTheValues(Attention):
    def forward(self, q, k, v):
        one = torch.eye(v.shape[2]).expand(*v.shape[:2], -1, -1)
        return super().forward(q, k, one)


class AttentionOfTorch(Attention):
    def forward(self, q, k, v):
        far = self.bias_table.shape[1] // 2
        bias = self.bias_table[:, table_rows(q.shape[2], k.shape[2], far)]
        dropout_p = self.dropout_p if self.training else 0.0
        return scaled_dot_product_attention(q, k, v, bias[None], dropout_p)


def bias(scores, table):
    length, far = scores.shape[-1], table.shape[1] // 2
    return scores + table[:, table_rows(length, length, far)]


def mirrored_bias(scores, table):
    return bias(scores, table.flip(1))


def values(weights, table, start=None):
    rows = table_rows(*weights.shape[2:], len(table) // 2, query_start=start)
    return torch.einsum("bhij,ijd->bhid", weights, table[rows])


def nearest_values(weights, table):
    offset = relative_offsets(*weights.shape[2:])
    rows = (offset + len(table) // 2).remainder(len(table))
    return torch.einsum("bhij,ijd->bhid", weights, table[rows])


def weights_of(query, keys, table, start=None, causal=True):
    one = torch.eye(keys.shape[2]).expand(*keys.shape[:2], -1, -1)
    return relative_attention(
        query, keys, one, key_table=table, is_causal=causal, query_start=start
    )


def rows_moved_but_not_the_mask(query, keys, table):
    q_len, k_len = query.shape[2], keys.shape[2]
    mask = torch.arange(k_len) <= torch.arange(q_len)[:, None]
    one = torch.eye(k_len).expand(*keys.shape[:2], -1, -1)
    return relative_attention(query, keys, one, key_table=table, mask=mask)


def weights_on_all(query, keys, table):
    return weights_of(query, keys, table, causal=False)


def rows(x, far):
    return table_rows(x.shape[1], x.shape[1], far, device=x.device)


def rows_in_float16(x, far):
    place = torch.arange(x.shape[1], device=x.device).half()
    return ((place - place[:, None]).clamp(-far, far) + far).long()


def rows_as_floats(x, far):
    return rows(x, far).double()


def rows_of_width(x, far):
    return rows(x.mT, far)


def rows_on_the_cpu(x, far):
    return table_rows(x.shape[1], x.shape[1], far)


def softmax(scores, mask):
    scores = scores.masked_fill(~mask, -torch.inf)
    scores = scores.masked_fill((~mask).all(-1, keepdim=True), 0)
    return scores.softmax(-1).masked_fill(~mask, 0)


def softmax_of_lowest(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0)


def softmax_filled_twice(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0)


def softmax_of_a_sum_filled_after(scores, mask):
    hidden = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return (scores + hidden).softmax(-1).masked_fill(~mask, 0)


def softmax_of_low(scores, mask):
    return scores.masked_fill(~mask, -1e4).softmax(-1)


def softmax_of_nothing(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def softmax_without_nan(scores, mask):
    return softmax_of_nothing(scores, mask).nan_to_num()


def join(out):
    return out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)


def interleaved_join(out):
    return out.permute(0, 2, 3, 1).flatten(2)


def scores_of(query, table):
    length = query.shape[2]
    pairs = table[table_rows(length, length, length - 1)]
    return torch.einsum("bhid,ijd->bhij", query, pairs)


def scores_by_long_shift(query, table):
    length = query.shape[2]
    step = 2 * length - 1
    flat = pad(query @ table.mT, (0, 1)).flatten(2)[..., length - 1 :]
    return flat[..., : length * step].unflatten(2, (length, step))[..., :length]


RIGHT = [
    (check_evaluation, Attention),
    (check_evaluation, AttentionOfTorch),
    (check_directions, bias),
    (check_far_values, values),
    (check_cached_weights, weights_of),
    (check_half_rows, rows),
    (check_empty_rows, softmax),
    (check_empty_rows, softmax_of_lowest),
    (check_empty_rows, softmax_filled_twice),
    (check_joined_heads, join),
    (check_position_scores, scores_of),
    (check_position_scores, scores_by_long_shift),
]

WRONG = [
    *((CHECKS[name], suspect) for name, suspect in SUSPECTS.items()),
    (check_evaluation, NeverDrops),
    (check_evaluation, DropsInEvaluation),
    (check_evaluation, DropsTheOutput),
    (check_evaluation, ForgetsTheValues),
    (check_evaluation, lambda table, dropout_p: bias),
    (check_directions, mirrored_bias),
    (check_directions, lambda scores, table: scores),
    (check_directions, lambda scores, table: bias(scores, table)[:, 0]),
    (check_far_values, nearest_values),
    (check_far_values, lambda w, table: values(w, table, start=0)),
    (check_far_values, lambda w, table: values(w, table.flip(0))),
    (check_far_values, lambda w, table: values(w, table) / w.shape[1]),
    (check_cached_weights, rows_moved_but_not_the_mask),
    (check_cached_weights, lambda *given: weights_of(*given, start=0)),
    (check_cached_weights, weights_on_all),
    (check_cached_weights, lambda q, k, table: weights_of(q, k, table.flip(0))),
    (check_half_rows, rows_in_float16),
    (check_half_rows, rows_as_floats),
    (check_half_rows, lambda x, far: rows(x, far).mT),
    (check_half_rows, rows_of_width),
    (check_half_rows, rows_on_the_cpu),
    (check_empty_rows, softmax_of_low),
    (check_empty_rows, softmax_of_a_sum_filled_after),
    (check_empty_rows, softmax_of_nothing),
    (check_empty_rows, softmax_without_nan),
    (check_empty_rows, lambda s, m: softmax(s, m).detach()),
    (check_empty_rows, lambda s, m: s.softmax(-1).masked_fill(~m, 0)),
    (check_joined_heads, interleaved_join),
    (check_joined_heads, lambda out: out),
    (check_joined_heads, lambda out: join(out.flip(1))),
    (check_position_scores, lambda q, table: scores_of(q, table).tril()),
    (check_position_scores, lambda q, table: scores_of(q, table.flip(0))),
    (check_position_scores, lambda *_: 1 / 0),
]


class Stub(Attention):
    def forward(self, q, k, v): ...


test_right_answer_is_accepted = accepts(RIGHT)
test_wrong_answer_is_refused_with_a_reason = refuses(WRONG)
test_gap_is_not_attempted = sees_gaps(RIGHT)


def test_module_with_a_gap_is_not_attempted(capsys):
    check_evaluation(Stub)
    assert capsys.readouterr().out == "check_evaluation: not attempted yet\n"


test_common_mistakes_are_named = names(
    [
        (check_evaluation, SUSPECTS["SuspectAttention"], "two calls in eval"),
        (check_evaluation, NeverDrops, "no weight is dropped"),
        (check_evaluation, DropsTheOutput, "something else was dropped"),
        (check_directions, SUSPECTS["suspect_bias"], "get the same bias"),
        (check_directions, mirrored_bias, "changed places"),
        (check_far_values, SUSPECTS["suspect_values"], "a table of ones must give 1"),
        (check_cached_weights, SUSPECTS["suspect_weights"], "gives no weight to key"),
        (check_cached_weights, weights_on_all, "still ahead"),
        (check_half_rows, SUSPECTS["suspect_rows"], "row (i, j) at (253, 257) is 7"),
        (check_half_rows, rows_in_float16, "in torch.float16 with L=2051"),
        (check_half_rows, rows_as_floats, "integer dtype"),
        (check_half_rows, rows_of_width, "shape (2, 2), expected (5, 5)"),
        (check_half_rows, rows_on_the_cpu, "device of the input"),
        (check_empty_rows, SUSPECTS["suspect_softmax"], "becomes NaN"),
        (check_empty_rows, softmax_of_low, "must not see"),
        (check_empty_rows, softmax_of_nothing, "gets NaN"),
        (check_empty_rows, softmax_without_nan, "came from"),
        (check_joined_heads, SUSPECTS["suspect_join"], "holds numbers that place"),
        (check_position_scores, SUSPECTS["suspect_scores"], "ahead of the query"),
    ]
)
