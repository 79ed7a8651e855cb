"""PatchTST over all channels (Nie et al. 2023, arXiv 2211.14730; paper 000, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import nn

from explainbench.core.errors import BadInput
from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models._blocks import EncoderBlock, rollout, steps_of_patches
from explainbench.models._torch import Layout, TrainedEntry, check_heads

EPSILON = 1e-5  # of the instance normalisation, in squared z-units


class Network(nn.Module):
    """Instance-normalised overlapping patches of all channels -> encoder -> one linear head over all tokens.

    Differs from the paper in one point: a patch holds every channel, where the paper treats channels independently,
    which makes attributions to covariates zero by construction. Calendar channels are not normalised.
    """

    def __init__(self, layout: Layout, width: int, heads: int, layers: int, patch: int, stride: int) -> None:
        super().__init__()
        shape = layout.shape
        self.target = shape.target
        self.patch, self.stride = patch, stride
        self.tokens = (shape.context - patch) // stride + 1
        self.first = shape.context - (self.tokens - 1) * stride - patch  # steps too old to fill a patch
        self.register_buffer("observed", torch.tensor([not known for known in layout.known]), persistent=False)
        self.embed = nn.Linear(patch * shape.channels, width)
        self.position = nn.Parameter(torch.randn(self.tokens, width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.features = nn.LayerNorm(width)  # one token per patch (n, tokens, d)
        self.head = nn.Linear(self.tokens * width, shape.horizon)
        nn.init.normal_(self.head.weight, std=1e-3)
        nn.init.zeros_(self.head.bias)

    observed: torch.Tensor

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        x, centre, scale = self._normalised(z)
        x = self._embedded(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.features(x).flatten(1)) * scale + centre

    def received(self, z: torch.Tensor) -> torch.Tensor:
        """The attention that each patch receives, averaged over the tokens that the head reads: (n, tokens)."""
        x = self._embedded(self._normalised(z)[0])
        seen = []
        for block in cast("Iterable[EncoderBlock]", self.blocks):
            seen.append(block.weights(x))
            x = block(x)
        return rollout(seen).mean(1)

    def shares(self, steps: int) -> torch.Tensor:
        """A token is a patch, and patches overlap: (tokens, t)."""
        return steps_of_patches(steps, self.patch, self.stride, self.tokens)

    def _normalised(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Observed channels with their window's mean and deviation removed; the target's two, (n, 1) each."""
        mean = z.mean(1, keepdim=True)
        scale = ((z - mean).square().mean(1, keepdim=True) + EPSILON).sqrt()
        x = torch.where(self.observed, (z - mean) / scale, z)
        return x, mean[:, :, self.target], scale[:, :, self.target]

    def _embedded(self, x: torch.Tensor) -> torch.Tensor:
        patches = x[:, self.first :].unfold(1, self.patch, self.stride)  # (n, tokens, c, patch)
        return self.embed(patches.flatten(2)) + self.position


@MODELS.register(
    ModelCard(
        architecture="PatchTST over all channels",
        source="Nie et al. 2023 (arXiv 2211.14730); own module, patches hold all channels",
        attention="patch",
        gradcam_layer="features",
    )
)
@dataclass(frozen=True, slots=True)
class PatchTST(TrainedEntry):
    """Patch-based Transformer with instance normalisation, over all channels.

    width: of the tokens; heads: per layer, dividing width; layers: encoder blocks; patch, stride: steps of a patch and
    between patches; the rest is the training schedule.
    """

    width: Annotated[int, Field(gt=0)] = 64
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 2
    patch: Annotated[int, Field(gt=0)] = 16
    stride: Annotated[int, Field(gt=0)] = 8

    def __post_init__(self) -> None:
        check_heads(self)

    def network(self, layout: Layout) -> Network:
        """The network with fresh parameters."""
        if self.patch > layout.shape.context:
            raise BadInput(
                f"params: models.patchtst.patch {self.patch} is longer than the context {layout.shape.context}."
            )
        return Network(layout, self.width, self.heads, self.layers, self.patch, self.stride)
