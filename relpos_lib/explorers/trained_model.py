"""Trained model explorer: small trained models at work, at any length."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
import traitlets
from torch import Tensor

from relpos_lib.attention import checked_inputs
from relpos_lib.backends import gather
from relpos_lib.experiments.build import build
from relpos_lib.experiments.model import TinyLayer, TinyTransformer
from relpos_lib.experiments.run import Run, run_from
from relpos_lib.experiments.tasks import IGNORED, switch, switch_source
from relpos_lib.explorers._base import Explorer, WholeNumber, Word, fixed
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._picture import draw_panels, round_up
from relpos_lib.explorers._traits import TraitType
from relpos_lib.heads import split_heads
from relpos_lib.records import RESULTS, result

SHORTEST, LONGEST = 2, 256
LONGEST_TEXT = 64
LETTERS = "pabcdefghijklmno"  # the letter of each symbol: its code modulo 16
SCHEMES = ("none", "sinusoidal", "alibi", "bias", "shaw")


class Typed(TraitType[str, str]):
    """Synchronised text of any characters, up to a number of them.

    Args:
        most: how many characters there may be.
    """

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__("", **options)
        self.most = most
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> str:
        """Refuse what is no text or too much of it, naming the trait.

        Half a surrogate pair is no character: it could not even be sent to the page.
        """
        if not isinstance(value, str) or any("\ud800" <= c <= "\udfff" for c in value):
            got = repr(value)
        elif len(value) > self.most:
            got = f"{len(value)} of them"
        else:
            return value
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must be text of at most {self.most} "
            f"characters, got {got}"
        )


class Shown(NamedTuple):
    """What the figure shows now.

    Attributes:
        symbols: the sequence, (L,), int64.
        answers: the right answers, (L,), int64; -100 where there is none.
        logits: what the model says, (L, 16).
        weights: attention weights of the chosen layer and head, (L, L).
    """

    symbols: Tensor
    answers: Tensor
    logits: Tensor
    weights: Tensor


class TrainedModelExplorer(Explorer):
    """Small models trained on the task "switch", computing in the page.

    The reader types a sequence, moves its length past the training length, chooses
    scheme, layer and head, and sees answers, mistakes and attention weights. The
    models come with the library; ``python -m relpos_lib.experiments sweep live`` makes
    them again.

    Args:
        schemes: which models: some of "none", "sinusoidal", "alibi", "bias" and "shaw",
            at least one.
        scheme: which of them is shown; the first if not given.
        text: how the sequence begins, at most 64 characters. A character stands for
            its code modulo 16, so the letters a to p are all there are.
        length: L, from 2 to ``max_length``; what the text does not fill is invented.
        layer: which layer's attention is shown, from 1.
        head: which head's, from 1.
        max_length: largest length that can be chosen, from 2 to 256.

    Raises:
        ValueError: if ``schemes`` is empty or names another scheme.
        traitlets.TraitError: if a value is out of its range, now or when it is set.

    Source:
        The task and the models are those of ``relpos_lib.experiments``.

    >>> TrainedModelExplorer(["shaw"], length=100).right()
    (98, 98)
    """

    _esm = bundle("trained_model.js")

    schemes = fixed(traitlets.List, traitlets.Unicode())
    max_length = fixed(WholeNumber, SHORTEST, LONGEST)
    trained = fixed(WholeNumber, 0, LONGEST)
    width = fixed(WholeNumber, 0, 1024)
    num_heads = fixed(WholeNumber, 0, 64)
    num_layers = fixed(WholeNumber, 0, 64)
    _invented = fixed(traitlets.List, traitlets.Int())
    _layouts = fixed(traitlets.Dict)
    _weights = fixed(traitlets.Bytes)
    scheme = Word(among="schemes")
    text = Typed(LONGEST_TEXT)
    length = WholeNumber(SHORTEST, "max_length")
    layer = WholeNumber(1, "num_layers")
    head = WholeNumber(1, "num_heads")

    def __init__(
        self,
        schemes: Collection[str] = ("sinusoidal", "bias", "shaw"),
        *,
        scheme: str | None = None,
        text: str = "",
        length: int = 24,
        layer: int = 2,
        head: int = 1,
        max_length: int = LONGEST,
    ) -> None:
        runs = _runs(schemes)
        self._models = {name: _model(run) for name, run in runs.items()}
        first = next(iter(runs.values()))
        layouts, numbers = _packed(self._models)
        self._fix(
            schemes=list(runs),
            max_length=max_length,
            trained=first.longest,
            width=first.width,
            num_heads=first.heads,
            num_layers=first.layers,
            _layouts=layouts,
            _weights=numbers,
        )
        self._fix(_invented=_invention(self.max_length))
        super().__init__(
            scheme=next(iter(runs)) if scheme is None else scheme,
            text=text,
            length=length,
            layer=layer,
            head=head,
        )

    def symbols(self) -> Tensor:
        """The sequence as it stands now: the text, then what is invented, (L,)."""
        typed = [ord(character) % len(LETTERS) for character in self.text]
        whole = typed + self._invented[len(typed) :]
        return torch.tensor(whole[: self.length])

    def values(self) -> Shown:
        """What the figure shows now, computed by the model itself."""
        symbols = self.symbols()
        logits, maps = _run(self._models[self.scheme], symbols)
        weights = maps[self.layer - 1, self.head - 1]
        return Shown(symbols, switch(symbols[None])[0], logits, weights)

    def right(self) -> tuple[int, int]:
        """How many answers are right, and how many are asked for."""
        shown = self.values()
        asked = shown.answers != IGNORED
        hits = shown.logits.argmax(-1)[asked] == shown.answers[asked]
        return int(hits.sum()), int(asked.sum())

    def on_answers(self) -> Tensor:
        """Mean weight of each head on the places where the answers stand.

        Returns:
            The means, (layers, H); NaN if no answer is asked for.
        """
        symbols = self.symbols()
        _, maps = _run(self._models[self.scheme], symbols)
        source = switch_source(symbols[None])[0]
        asked = (source >= 0).nonzero()[:, 0]
        return maps[..., asked, source[asked]].mean(-1)

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        right, asked = self.right()
        about = (
            f"Trained model explorer: {self.scheme}, trained at lengths up to "
            f"{self.trained}, gives {right} of {asked} right answers at length "
            f"{self.length}"
        )
        if not asked:
            return f"{about}."
        share = self.on_answers()[self.layer - 1, self.head - 1].item()
        return (
            f"{about}; layer {self.layer}, head {self.head} puts {share:.0%} of its "
            "weight where the answers stand."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        right, asked = self.right()
        weights = self.values().weights.double().numpy()
        title = (
            f"{self.scheme}, length {self.length}: {right} of {asked} right\n"
            f"layer {self.layer}, head {self.head}"
        )
        top = round_up(float(weights.max()))
        return draw_panels([weights], [title], 0, top, "attention weight")


def _runs(schemes: Collection[str]) -> dict[str, Run]:
    """The runs that the models come from, by scheme."""
    known = ", ".join(SCHEMES)
    if isinstance(schemes, str) or not schemes:
        raise ValueError(f"schemes must be some of {known}, got {schemes!r}")
    for name in schemes:
        if name not in SCHEMES:
            raise ValueError(f"schemes must be some of {known}, got {name!r}")
    found: Mapping[str, Any] = result("experiments-live")
    made = {
        group["run"]["scheme"]: run_from(found["common"] | group["run"])
        for group in found["groups"].values()
    }
    return {name: made[name] for name in dict.fromkeys(schemes)}


def _model(run: Run) -> TinyTransformer:
    from safetensors.torch import load_file

    model = build(run)
    model.load_state_dict(load_file(RESULTS / f"live-{run.scheme}.safetensors"))
    return model.eval()


def _packed(models: Mapping[str, TinyTransformer]) -> tuple[dict[str, Any], bytes]:
    """Where each weight of each model begins, and all of them as float16."""
    layouts: dict[str, Any] = {}
    numbers, start = b"", 0
    for scheme, model in models.items():
        layouts[scheme] = []
        for name, tensor in model.state_dict().items():
            layouts[scheme].append([name, list(tensor.shape), start])
            numbers += tensor.half().contiguous().numpy().astype("<f2").tobytes()
            start += tensor.numel()
    return layouts, numbers


def _invention(length: int) -> list[int]:
    """Symbols that no one typed, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    invented = torch.randint(len(LETTERS), (LONGEST,), generator=generator)
    symbols: list[int] = invented[:length].tolist()
    return symbols


@torch.no_grad()
def _run(model: TinyTransformer, symbols: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (L, 16) of a sequence, and all its weights, (layers, H, L, L)."""
    x = model.encoding(model.embedding(symbols[None]))
    maps = []
    for layer in model.layers:
        assert isinstance(layer, TinyLayer)
        maps.append(_weights_of(layer, x)[0])
        x = layer(x)
    return model.readout(model.norm(x))[0], torch.stack(maps)


def _weights_of(layer: TinyLayer, x: Tensor) -> Tensor:
    """Attention weights of a layer for its input (1, L, E), (1, H, L, L)."""
    y = layer.norm1(x)
    query, key, value = (
        split_heads("x", projection, y, layer.num_heads)
        for projection in (layer.wq, layer.wk, layer.wv)
    )
    wide = gather.prepared(
        checked_inputs(query, key, value, **layer.tables(x.shape[1]))
    )
    content, position = gather.content_scores(wide), gather.positional_scores(wide)
    return gather.attention_weights(wide, wide.scale * (content + position))
