"""Checks of the steps from an empty cell to Shaw's attention with a cache."""

from relpos_lib.exercises.implement.attention import (
    check_step_1,
    check_step_5,
)
from relpos_lib.exercises.implement.masks import (
    check_step_2,
)
from relpos_lib.exercises.implement.module import (
    check_step_9,
    check_step_10,
)
from relpos_lib.exercises.implement.positions import (
    check_step_3,
    check_step_3_visible,
    check_step_4,
)
from relpos_lib.exercises.implement.shaw import (
    check_step_6,
    check_step_7,
    check_step_8,
    check_step_8_attention,
    check_whole,
)

__all__ = [
    "check_step_1",
    "check_step_2",
    "check_step_3",
    "check_step_3_visible",
    "check_step_4",
    "check_step_5",
    "check_step_6",
    "check_step_7",
    "check_step_8",
    "check_step_8_attention",
    "check_step_9",
    "check_step_10",
    "check_whole",
]
