"""Every figure in JupyterLab: what is moved there reaches the kernel, and back."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

SETUP = """import torch

from relpos_lib import ALiBi, GatedBiasRPE, RelativeMultiHeadAttention, explorers
from relpos_lib.records import result

torch.manual_seed(0)
content = torch.randn(1, 4, 8, 16), torch.randn(1, 4, 8, 16)
shaw = RelativeMultiHeadAttention(16, 2, max_relative_positions=4)
figure = explorers.{figure}
figure"""
# Figure; the control by its label; the trait that it moves.
FIGURES = {
    "index": ("IndexMatrixExplorer()", "Maximum distance", "max_distance"),
    "sinusoid": ("SinusoidExplorer()", "Position", "position"),
    "curve": ("BiasCurveExplorer(*content)", "Maximum distance", "max_distance"),
    "gate": ("GateExplorer(GatedBiasRPE(4, 4), *content)", "Head", "head"),
    "bias": (
        "AttentionMapExplorer.from_bias(*content, ALiBi(4))",
        "Maximum distance",
        "max_distance",
    ),
    "shaw": (
        'AttentionMapExplorer.from_shaw(shaw, torch.randn(8, 16), view="steps")',
        "Sequence length",
        "length",
    ),
    "near-far": ("NearFarExplorer()", "Length", "length"),
    "model": ('TrainedModelExplorer(text="headline", length=24)', "Length", "length"),
    "lengths": (
        'LengthPlotExplorer.from_results(result("experiments-length"))',
        "Spread over seeds",
        "spread",
    ),
    "quiz": ('Quiz.of("bias")', None, "answers"),
}
# Of a canvas that is larger than its box, the corner that is seen.
DRAWN = """figure => {
    const pixels = [...figure.querySelectorAll("canvas")].map((canvas) => {
        const [width, height] = ["width", "height"].map((side) =>
            Math.round(100 * canvas[side] / (parseFloat(canvas.style[side]) || 100)));
        const seen = canvas.getContext("2d").getImageData(0, 0, width, height);
        return [width, height, ...seen.data].join();
    });
    const lines = [...figure.querySelectorAll("svg")].map((svg) => svg.outerHTML);
    return [figure.innerText, ...pixels, ...lines].join("\\n");
}"""


def control_of(figure, label):
    """The control with this label, or the first one."""
    return figure.get_by_label(label).first if label else figure.locator("input").first


def state_of(control):
    """What the control shows."""
    checks = control.get_attribute("type") in ("checkbox", "radio")
    return control.is_checked() if checks else control.input_value()


def press(control):
    """Move the control by the keyboard, away from the end that it stands at."""
    if control.get_attribute("type") in ("checkbox", "radio"):
        control.press("Space")
        control.press("Enter")  # a quiz waits for it, and a box does not mind
    else:
        at_end = control.input_value() == control.get_attribute("max")
        control.press("ArrowLeft" if at_end else "ArrowRight")


@pytest.mark.parametrize("name", FIGURES)
def test_controls_move_traits_and_traits_move_drawings(open_notebook, name):
    made, label, trait = FIGURES[name]
    tell = f"print('moved:', figure.{trait} != before)\nfigure.{trait} = before"
    keep = f"before = figure.{trait}"
    cells = SETUP.format(figure=made), keep, tell
    page = open_notebook(name, *cells, last_words="moved: False")
    figure = page.locator(".rp-figure").first
    control = control_of(figure, label)
    control.scroll_into_view_if_needed()
    drawing, state = figure.evaluate(DRAWN), state_of(control)

    press(control)
    assert state_of(control) != state
    assert figure.evaluate(DRAWN) != drawing
    page.locator(".jp-CodeCell").last.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    expect(page.get_by_text("moved: True")).to_have_count(1)
    page.wait_for_function(
        f"([figure, drawing]) => ({DRAWN})(figure) === drawing",
        arg=[figure.element_handle(), drawing],
    )
    assert state_of(control) == state
