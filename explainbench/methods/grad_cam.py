"""Grad-CAM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel, HasFeatureMap, HasTorchModule, require
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows
from explainbench.methods._time_map import on_channels

if TYPE_CHECKING:
    import torch


@METHODS.register(
    MethodCard(
        title="Grad-CAM",
        category="attention",
        source="Selvaraju et al. 2017, on the time axis",
        deterministic=True,
        vector="nonnegative",
        needs=("HasTorchModule", "HasFeatureMap"),
        cost="gradient",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class GradCam:
    """The declared layer's features weighted by their mean gradients over time, negative sums cut off.

    The layer's output is (n, tokens, d) with tokens on the time axis; the library takes axis 1 for features, so it sees
    the layer through an adapter that swaps the two. Tokens are brought to steps exactly: the latest token covers the
    latest steps, and only the oldest may be short. Like attention, the map has no channel axis.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c), non-negative; raises NotApplicable for a model without a feature map in time.

        notes, per window: `zero_map`, 1 where nothing survives the cut; `negative_share`, how much of the map's
        absolute sum the cut removed, so 1 minus the share that a map of absolute values would have kept.
        """
        import torch
        from captum.attr import LayerGradCam

        require(model.forecaster, HasTorchModule)
        layer = require(model.forecaster, HasFeatureMap).feature_layer
        steps = windows.context.shape[1]
        maps = []
        with _features_first(layer) as adapter:
            library = LayerGradCam(model.torch, adapter)
            for start in range(0, len(windows), model.batch):  # the library keeps only the last call of a layer
                part = torch.from_numpy(windows.context[start : start + model.batch].astype(np.float32))
                cam = library.attribute(part.requires_grad_())
                assert isinstance(cam, torch.Tensor)
                maps.append(cam[: len(part), 0].detach().double().numpy())
        signed = to_steps(np.concatenate(maps), steps)
        total = np.abs(signed).sum(axis=1)
        removed = np.maximum(-signed, 0.0).sum(axis=1)
        notes = {
            "zero_map": (signed.max(axis=1) <= 0).astype(float),
            "negative_share": np.divide(removed, total, out=np.zeros_like(total), where=total > 0),
        }
        return Explanation(on_channels(np.maximum(signed, 0.0), masker), notes=notes)


def to_steps(tokens: Floats, steps: int) -> Floats:
    """A map over tokens (n, m) as a map over steps (n, t): each step has the value of the token that covers it.

    Tokens are ceil(t / m) steps long and end at the last step. Raises BadInput when m tokens cannot tile t steps.
    """
    count = tokens.shape[1]
    length = -(-steps // count)
    if -(-steps // length) != count:
        raise BadInput(
            f"grad_cam: the model's feature layer has {count} tokens, which do not tile {steps} context steps; "
            "declare a layer whose output is (n, tokens, d) with tokens on the time axis."
        )
    return np.repeat(tokens, length, axis=1)[:, count * length - steps :]


@contextmanager
def _features_first(layer: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """A module through which the output of `layer` passes as (n, d, tokens), on its way back to (n, tokens, d)."""
    from torch import nn

    adapter = nn.Identity()
    hook = layer.register_forward_hook(lambda _, __, output: adapter(output.transpose(1, 2)).transpose(1, 2))
    try:
        yield adapter
    finally:
        hook.remove()
