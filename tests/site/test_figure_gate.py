"""Gate explorer in a browser: its arithmetic, two settings side by side, everybody."""

from itertools import product

import numpy as np
import pytest
import torch
from figure_pages import (
    MODEL,
    assert_colours,
    assert_nothing_grows,
    assert_nothing_overflows,
    assert_unique_ids,
    axe_findings,
    content_of,
    hover_cell,
    move_slider,
    number,
    readout,
    slider_of,
    tab_stops,
)

from relpos_lib.bias import GatedBiasRPE
from relpos_lib.explorers import GateExplorer
from relpos_lib.explorers._picture import round_up

H, D = 3, 5
GATES = np.linspace(-6, 6, 49)
SCALES = np.linspace(-3, 3, 25)
FIND = "Find another pair with the same product"
BARE = {"gateLimit": 6, "scaleLimit": 3}

WEIGHTS = """async ([core, own, traits, cases]) => {
  const { allowedPairs, attendWithBias, contentOf } = await import(core);
  const { gateStrength } = await import(own);
  const { Q, S, Kmax, content } = contentOf(MODEL(traits));
  return cases.map(([gate, scale, causal]) => {
    const allowed = allowedPairs(Q, S, causal);
    return traits.table.map((row, head) => {
      const bias = row.map((b) => gateStrength(gate, scale) * b);
      const options = { Q, S, K: Kmax, Kmax, allowed };
      return [...attendWithBias(content[head], bias, options).weights];
    });
  });
}""".replace("MODEL", MODEL)


def trained(max_len=5):
    torch.manual_seed(0)
    rpe = GatedBiasRPE(H, max_len)
    for parameter in rpe.parameters():
        torch.nn.init.normal_(parameter)
    return rpe


def explorer(q_len=9, k_len=9, max_len=5, **options):
    torch.manual_seed(1)
    query, key = torch.randn(H, q_len, D), torch.randn(H, k_len, D)
    return GateExplorer(trained(max_len), query, key, **options)


# Arithmetic


def test_strengths_over_both_ranges(module):
    script = """async ([address, cases]) => {
      const { gateStrength } = await import(address);
      return cases.map(([gate, scale]) => gateStrength(gate, scale));
    }"""
    cases = np.array(list(product(GATES, SCALES)))
    rpe = GatedBiasRPE(len(cases), 1).double().requires_grad_(False)
    rpe.gate.copy_(torch.tensor(cases[:, 0]))
    rpe.logit_scale.copy_(torch.tensor(cases[:, 1]))
    found = module("gate_math.js", script, cases.tolist())
    np.testing.assert_allclose(found, rpe.strength().numpy(), rtol=1e-12)


def test_other_pairs_are_those_of_python(module):
    script = """async ([address, cases, limits]) => {
      const { otherSetting } = await import(address);
      return cases.map(([g, s, before]) => otherSetting([g, s], before, limits));
    }"""
    befores = (-6, -1.37, 0, 2.5, 6)
    cases = [[g, s, b] for g, s, b in product(GATES[::2], SCALES[::2], befores)]
    answers = module("gate_math.js", script, cases, BARE)
    figure = GateExplorer(GatedBiasRPE(1, 2), length=2)
    for (gate, scale, before), found in zip(cases, answers, strict=True):
        figure.gate, figure.log_scale = [gate], [scale]
        start = figure.second_gate, figure.second_log_scale = (before,), (99 * 0.01,)
        figure.match()
        setting = figure.second_gate, figure.second_log_scale
        if found is None:
            assert setting == start
            continue
        np.testing.assert_allclose(found, [setting[0][0], setting[1][0]], atol=1e-9)
        first, second = figure.strengths()[:, 0]
        assert abs(first / second - 1) < 1e-9
        assert abs(found[0] - gate) > 0.001


@pytest.mark.parametrize("sizes", [(9, 9, 5), (7, 11, 40), (11, 7, 2), (1, 1, 1)])
def test_weights(module, source_url, sizes):
    figure = explorer(*sizes)
    table = np.frombuffer(figure._table, "<f4").reshape(H, -1)
    traits = content_of(figure) | {"table": table.tolist()}
    cases = list(product(GATES[::6], SCALES[::6], (False, True)))
    own = f"{source_url}relpos_lib/explorers/gate_math.js"
    found = np.array(module("core.js", WEIGHTS, own, traits, cases))
    for (gate, scale, causal), weights in zip(cases, found, strict=True):
        figure.gate, figure.log_scale, figure.causal = [gate] * H, [scale] * H, causal
        expected = figure.maps()[0]["weights"].flatten(1)
        np.testing.assert_allclose(weights, expected, atol=1e-5)


# Drawing


def assert_drawn(figure, expected):
    """The three matrices show what Python says; both weights share one scale."""
    values = expected.values()
    weights = [values["first"], values["second"]]
    top = round_up(max(part.nan_to_num(0).max().item() for part in weights))
    panels = figure.locator(".rp-panel")
    assert panels.count() == 3
    for panel, matrix in zip(panels.all(), weights, strict=False):
        assert_colours(panel, matrix.numpy(), 0, top)
    assert_colours(panels.last, values["difference"].numpy(), -top, top)


def set_head(expected, head, **numbers):
    """Set one head's gates and scales in Python."""
    for trait, value in numbers.items():
        row = list(getattr(expected, trait))
        row[head - 1] = value
        setattr(expected, trait, row)


@pytest.mark.parametrize(
    ("sizes", "head", "first", "second", "causal"),
    [
        ((9, 9, 5), 1, (6, 3), (-6, -3), False),
        ((9, 9, 5), 3, (-6, 3), (6, -3), True),
        ((7, 11, 40), 2, (0.5, -0.25), (1, 1.5), False),
        ((34, 33, 3), 2, (2, 0), (0, 2), True),
    ],
)
def test_controls_draw(open_figure, sizes, head, first, second, causal):
    figure = open_figure(explorer(*sizes))
    move_slider(figure, "Head", head)
    for name, (gate, scale) in (("A", first), ("B", second)):
        move_slider(figure, f"Gate {name}", gate)
        move_slider(figure, f"Log-scale {name}", scale)
    figure.get_by_label("Causal mask").set_checked(causal)
    expected = explorer(*sizes, head=head, causal=causal)
    set_head(expected, head, gate=first[0], log_scale=first[1])
    set_head(expected, head, second_gate=second[0], second_log_scale=second[1])
    assert_drawn(figure, expected)
    products = figure.locator(".rp-gate-product").all_text_contents()
    for text, strength in zip(products, expected.strengths()[:, head - 1], strict=True):
        assert float(text.split("=")[1]) == pytest.approx(strength.item(), abs=6e-5)


def test_curves_are_the_tables(open_figure):
    expected = explorer(head=2)
    figure = open_figure(expected)
    tables = expected.tables()[:, 1].numpy()
    top = round_up(float(abs(tables).max()))
    lines = figure.locator(".rp-chart-box .rp-chart-line").all()
    assert len(lines) == 3
    for line, table in zip(lines, tables, strict=True):
        path = line.locator(".rp-chart-dots").get_attribute("d")
        heights = [float(p.split()[1].split("h")[0]) for p in path.split("M")[1:]]
        found = top - np.array(heights) / 1000 * 2 * top
        np.testing.assert_allclose(found, table, atol=0.002 * top)


def test_each_head_has_settings_of_its_own(open_figure):
    expected = explorer()
    figure = open_figure(expected)
    move_slider(figure, "Gate A", -2)
    move_slider(figure, "Head", 2)
    gate = expected.gate[1]
    text = figure.locator(".rp-gate-settings output").first.inner_text()
    assert float(text.replace("\N{MINUS SIGN}", "-")) == pytest.approx(gate, abs=6e-3)
    move_slider(figure, "Head", 1)
    set_head(expected, 1, gate=-2)
    assert_drawn(figure, expected)


def verdict(figure):
    return readout(figure)["verdict"]


def test_another_pair_with_the_same_product_is_the_same_model(open_figure):
    expected = explorer(head=2)
    figure = open_figure(expected)
    most = expected.values()["difference"].abs().max().item()
    assert verdict(figure) == f"{most:.3f}: different models"
    found = set()
    for _ in range(4):
        figure.get_by_role("button", name=FIND).click()
        expected.match()
        assert verdict(figure) == "0: both settings are the same model"
        assert_drawn(figure, expected)
        products = figure.locator(".rp-gate-product").all_text_contents()
        assert products[0] == products[1]
        found.add(slider_of(figure, "Gate B").input_value())
    assert len(found) == 4
    move_slider(figure, "Log-scale A", 2)
    assert verdict(figure).endswith("different models")


def test_a_corner_says_that_there_is_no_other_pair(open_figure):
    figure = open_figure(explorer())
    move_slider(figure, "Gate A", 6)
    move_slider(figure, "Log-scale A", 3)
    figure.get_by_role("button", name=FIND).press("Enter")
    note = figure.locator("p[role=status]")
    assert note.inner_text() == "The sliders reach no other pair."
    assert slider_of(figure, "Gate B").input_value() == "0"
    move_slider(figure, "Log-scale A", 2)
    assert note.inner_text() == ""


# Handling


def test_a_slider_dragged_by_mouse_and_keyboard(open_figures):
    expected = explorer()
    page = open_figures(expected)
    figure = page.locator(".rp-figure")
    gate = slider_of(figure, "Gate A")
    box = gate.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 5, steps=5)
    page.mouse.up()
    value = float(gate.input_value())
    assert 3 < value < 4.5
    gate.press("ArrowRight")
    assert float(gate.input_value()) == pytest.approx(value + 0.05)
    set_head(expected, 1, gate=float(gate.input_value()))
    assert_drawn(figure, expected)
    gate.press("Home")
    set_head(expected, 1, gate=-6)
    assert_drawn(figure, expected)


@pytest.mark.parametrize("touch", [False, True])
def test_cells_and_chart_tell_their_numbers(open_figures, touch):
    expected = explorer(head=1, causal=True)
    page = open_figures(expected, has_touch=touch)
    figure = page.locator(".rp-figure")
    values, tables = expected.values(), expected.tables()[:, 0]
    for panel, i, j in ((0, 7, 2), (1, 8, 8), (2, 3, 1)):
        if touch:
            grid = figure.get_by_role("grid").nth(panel)
            grid.scroll_into_view_if_needed()
            box = grid.bounding_box()
            x = box["x"] + (j + 0.5) * box["width"] / 9
            page.touchscreen.tap(x, box["y"] + (i + 0.5) * box["height"] / 9)
        else:
            hover_cell(figure, i, j, 9, 9, panel=panel)
        told = readout(figure)
        assert (number(told["i"]), number(told["j"])) == (i, j)
        row = max(-4, min(4, j - i)) + 4
        assert number(told["offset"]) == row - 4
        for name, table in zip(("stored", "first", "second"), tables, strict=True):
            assert float(told[name]) == pytest.approx(table[row].item(), abs=6e-4)
        for name, key in (
            ("weightA", "first"),
            ("weightB", "second"),
            ("gap", "difference"),
        ):
            value = values[key][i, j].item()
            assert number(told[name]) == pytest.approx(value, abs=6e-4)
    hover_cell(figure, 2, 5, 9, 9)
    assert readout(figure)["weightA"] == "0, masked"
    figure.locator(".rp-chart-handle").press("Home")
    assert number(readout(figure)["offset"]) == -4


# For everybody


def test_text_alternatives_follow_the_state(open_figure):
    figure = open_figure(explorer())
    alts = [n.get_attribute("aria-label") for n in figure.locator(".rp-cells").all()]
    assert "head 1 in setting A. Largest" in alts[0]
    assert alts[2].endswith("different models.")
    figure.get_by_role("button", name=FIND).click()
    alt = figure.locator(".rp-cells").last.get_attribute("aria-label")
    assert alt == (
        "Weights of setting A minus those of B. "
        "Largest: 0: both settings are the same model."
    )
    strength = explorer().strengths()[0, 0].item()
    chart = figure.locator("svg[role=img]").first.get_attribute("aria-label")
    assert f"setting A multiplies it by {strength:.3f}" in chart


def test_every_stop_of_the_keyboard_is_seen(open_figures):
    page = open_figures(explorer())
    controls = ["range", "checkbox"] + ["range"] * 4 + ["button"]
    assert tab_stops(page, 11) == [*controls, "slider"] + ["grid"] * 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    single = GateExplorer(GatedBiasRPE(1, 40), length=40)
    page = open_figures(explorer(), single, theme=theme)
    page.get_by_role("button", name=FIND).first.click()
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(
        explorer(7, 11),
        explorer(40, 3),
    )
    assert_nothing_overflows(page, [280, 320, 480, 1100])


def test_nothing_moves_by_itself(open_figures):
    page = open_figures(explorer(), reduced_motion="reduce")
    page.get_by_role("button", name=FIND).click()
    assert page.evaluate("document.getAnimations().length") == 0


# Lasting


def test_two_figures_do_not_disturb_each_other(open_figures):
    page = open_figures(explorer(), explorer(head=2))
    first, second = page.locator(".rp-figure").all()
    first.get_by_role("button", name=FIND).click()
    move_slider(first, "Gate A", 5)
    assert_drawn(second, explorer(head=2))
    assert_unique_ids(page)


def test_copies_of_one_model_move_together(open_figures):
    page = open_figures(explorer(), copies=2)
    first, second = page.locator(".rp-figure").all()
    first.get_by_role("button", name=FIND).click()
    assert verdict(second) == "0: both settings are the same model"


def test_nothing_grows(open_figures):
    page = open_figures(explorer())
    figure = page.locator(".rp-figure")

    def play(rounds):
        figure.evaluate(
            """(figure, rounds) => {
              const sliders = figure.querySelectorAll("input[type=range]");
              const set = (node, value) => {
                node.value = value;
                node.dispatchEvent(new Event("input"));
              };
              for (let k = 0; k < rounds; k++) {
                set(sliders[0], 1 + (k % 3));
                for (const dial of [...sliders].slice(1)) set(dial, (k % 7) - 3);
                figure.querySelector("button").click();
              }
              set(sliders[0], 1);
            }""",
            rounds,
        )

    assert_nothing_grows(page, play, 20, 170)
