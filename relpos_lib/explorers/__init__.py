"""Interactive figures: one Python class and one ES module each.

A figure draws itself and its own labelled controls, and computes in the browser from
the tensors that Python gave it: with a kernel (Jupyter, Colab) and without one (the
website). Python can read, set, observe and link every control.
"""

from relpos_lib.explorers.attention_map import AttentionMapExplorer
from relpos_lib.explorers.bias_curve import BiasCurveExplorer
from relpos_lib.explorers.gate import GateExplorer
from relpos_lib.explorers.index_matrix import IndexMatrixExplorer
from relpos_lib.explorers.length_plot import LengthPlotExplorer
from relpos_lib.explorers.near_far import NearFarExplorer
from relpos_lib.explorers.quiz import Quiz
from relpos_lib.explorers.sinusoid import SinusoidExplorer
from relpos_lib.explorers.trained_model import TrainedModelExplorer

__all__ = [
    "AttentionMapExplorer",
    "BiasCurveExplorer",
    "GateExplorer",
    "IndexMatrixExplorer",
    "LengthPlotExplorer",
    "NearFarExplorer",
    "Quiz",
    "SinusoidExplorer",
    "TrainedModelExplorer",
]
