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
    the layer through an adapter that swaps the two. A step takes the value of the token that covers it, the mean where
    several do. Like attention, the map has no channel axis.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c), non-negative; raises NotApplicable for a model without a feature map in time.

        notes, per window: `zero_map`, 1 where nothing survives the cut; `negative_share`, how much of the map's
        absolute sum the cut removed, so 1 minus the share that a map of absolute values would have kept.
        """
        import torch
        from captum.attr import LayerGradCam

        require(model.forecaster, HasTorchModule)
        mapped = require(model.forecaster, HasFeatureMap)
        shares = mapped.feature_shares(windows.context.shape[1])
        maps = []
        with _features_first(mapped.feature_layer) as adapter:
            library = LayerGradCam(model.torch, adapter)
            for start in range(0, len(windows), model.batch):  # the library keeps only the last call of a layer
                part = torch.from_numpy(windows.context[start : start + model.batch].astype(np.float32))
                cam = library.attribute(part.requires_grad_())
                assert isinstance(cam, torch.Tensor)
                maps.append(cam[: len(part), 0].detach().double().numpy())
        signed = to_steps(np.concatenate(maps), shares)
        total = np.abs(signed).sum(axis=1)
        removed = np.maximum(-signed, 0.0).sum(axis=1)
        notes = {
            "zero_map": (signed.max(axis=1) <= 0).astype(float),
            "negative_share": np.divide(removed, total, out=np.zeros_like(total), where=total > 0),
        }
        return Explanation(on_channels(np.maximum(signed, 0.0), masker), notes=notes)


def to_steps(tokens: Floats, shares: Floats) -> Floats:
    """A map over tokens (n, m) as a map over steps (n, t): each step has the mean of the tokens that cover it.

    shares: (m, t) of `HasFeatureMap`; a step that no token covers gets 0. Raises BadInput for another number of tokens.
    """
    if tokens.shape[1] != len(shares):
        raise BadInput(
            f"grad_cam: the model's feature layer has {tokens.shape[1]} tokens, but its feature_shares place "
            f"{len(shares)}; declare the layer whose output (n, tokens, d) they describe."
        )
    covers = (shares > 0).astype(np.float64)
    return tokens @ (covers / np.maximum(covers.sum(axis=0), 1.0))


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
