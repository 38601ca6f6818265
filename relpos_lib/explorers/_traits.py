"""The base of our traits, for old traitlets too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

if TYPE_CHECKING:
    from traitlets import TraitType
else:

    class TraitType(traitlets.TraitType):
        """A trait whose types can be named in brackets.

        The traitlets of Colab, 5.7, came before such brackets.
        """

        def __class_getitem__(cls, types: Any) -> type:
            """Ignore the types, which only a type checker reads."""
            return cls


__all__ = ["TraitType"]
