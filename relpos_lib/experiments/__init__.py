"""Small experiments on position that run on a laptop in seconds."""

from relpos_lib.experiments.model import TinyTransformer
from relpos_lib.experiments.positions import ShawTables
from relpos_lib.experiments.tasks import IGNORED, delayed_copy, switch
from relpos_lib.experiments.training import accuracy, train

__all__ = [
    "IGNORED",
    "ShawTables",
    "TinyTransformer",
    "accuracy",
    "delayed_copy",
    "switch",
    "train",
]
