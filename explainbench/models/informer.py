"""Informer (Zhou et al. 2021, arXiv 2012.07436; paper 000, section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field
from torch import nn

from explainbench.core.arrays import Floats
from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models._blocks import HorizonQueries, Tokens, steps_of_tokens
from explainbench.models._torch import Layout, TokenForecaster, TrainedEntry, check_heads


class ProbSparse(nn.Module):
    """ProbSparse self-attention (section 3.1): only the u queries that look least uniform attend, the others average.

    A query's sparsity (eq. 4) is measured on a sample of keys. The paper's code draws that sample from the global
    generator on every call, so that its forecasts are random even in eval mode; here every call draws it from a
    generator of its own with a fixed seed, so a forward pass is a pure function.
    """

    def __init__(self, width: int, heads: int, factor: int, seed: int) -> None:
        super().__init__()
        self.heads, self.factor, self.seed = heads, factor, seed
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        scores, value = self._scores(x)
        rows, weights = self._active(scores)
        lazy = value.mean(2, keepdim=True).expand_as(value)
        mixed = lazy.scatter(2, rows.expand(-1, -1, -1, value.shape[-1]), weights @ value)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The attention of `forward` as a full matrix (n, heads, m, m): a lazy query's row is uniform."""
        scores, _ = self._scores(x)
        rows, weights = self._active(scores)
        uniform = torch.full_like(scores, 1.0 / scores.shape[-1])
        return uniform.scatter(2, rows.expand(-1, -1, -1, scores.shape[-1]), weights)

    def _scores(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, m, d = x.shape
        query, key, value = self.project(x).view(n, m, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind()
        return query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5, value

    def _active(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices (n, heads, u, 1) of the u active queries and their attention (n, heads, u, m)."""
        m = scores.shape[-1]
        count = min(m, self.factor * math.ceil(math.log(m)))
        generator = torch.Generator().manual_seed(self.seed)
        sample = torch.rand(m, m, generator=generator).argsort(1)[:, :count]  # keys compared with each query
        seen = scores.gather(3, sample.expand(*scores.shape[:2], -1, -1))
        sparsity = seen.amax(3) - seen.mean(3)
        rows = sparsity.topk(count, dim=2).indices[..., None]
        return rows, scores.gather(2, rows.expand(-1, -1, -1, m)).softmax(-1)


class Layer(nn.Module):
    """Encoder layer: ProbSparse attention and a feed-forward part, each after its layer norm."""

    def __init__(self, width: int, heads: int, factor: int, seed: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = ProbSparse(width, heads, factor, seed)
        self.norm_feed = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm_feed(x))))

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The attention of `forward`: (n, heads, m, m)."""
        return self.attention.weights(self.norm_attention(x))


class Distil(nn.Module):
    """Self-attention distilling (eq. 5): convolution, ELU, and max-pooling to half as many tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolve = nn.Conv1d(width, width, kernel_size=3, padding=1, padding_mode="replicate")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, ceil(m / 2), d)."""
        y = nn.functional.elu(self.convolve(x.transpose(1, 2)))
        return nn.functional.max_pool1d(y, 3, stride=2, padding=1).transpose(1, 2)


def origins(tokens: int) -> torch.Tensor:
    """(ceil(m / 2), m): the tokens that each distilled token was pooled from, in equal shares; rows sum to one."""
    centre = 2 * torch.arange(-(-tokens // 2))
    member = (torch.arange(tokens) - centre[:, None]).abs() <= 1
    return member / member.sum(1, keepdim=True)


class Network(nn.Module):
    """All channels -> tokens -> ProbSparse layers with distilling between them -> one-shot decoder, in z-units."""

    def __init__(
        self, layout: Layout, width: int, heads: int, layers: int, token: int, factor: int, key_seed: int
    ) -> None:
        super().__init__()
        self.tokens = Tokens(layout, width, token)
        self.layers = nn.ModuleList(Layer(width, heads, factor, key_seed + index) for index in range(layers))
        self.distils = nn.ModuleList(Distil(width) for _ in range(layers - 1))
        self.features = nn.LayerNorm(width)  # the distilled tokens (n, tokens, d)
        self.decoder = HorizonQueries(layout, width)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        x = self.tokens(z)
        for index, layer in enumerate(self.layers):
            x = self.distils[index - 1](x) if index else x
            x = layer(x)
        return self.decoder(z, self.features(x))

    def received(self, z: torch.Tensor) -> torch.Tensor:
        """The attention that each token receives from the forecast, through layers and distilling: (n, tokens).

        A layer counts half for its skip connection; a distilled token stands for the tokens it was pooled from.
        """
        x = self.tokens(z)
        flow = torch.eye(x.shape[1]).expand(len(x), -1, -1)
        for index, layer in enumerate(cast("Iterable[Layer]", self.layers)):
            if index:
                flow = origins(x.shape[1]) @ flow
                x = self.distils[index - 1](x)
            flow = 0.5 * (layer.weights(x).mean(1) @ flow + flow)
            x = layer(x)
        return (self.decoder.weights(z, self.features(x)).mean(1, keepdim=True) @ flow)[:, 0]

    def shares(self, steps: int) -> torch.Tensor:
        """A token is `token` steps: (tokens, t)."""
        return steps_of_tokens(steps, self.tokens.token)

    def distilled_shares(self, steps: int) -> torch.Tensor:
        """The tokens left after all distilling, on the steps they were pooled from: (distilled tokens, t)."""
        shares = self.shares(steps)
        for _ in self.distils:
            shares = origins(len(shares)) @ shares
        return shares


@dataclass(frozen=True, eq=False)
class InformerForecaster(TokenForecaster):
    """A fitted Informer, whose feature map has fewer tokens than its attention: distilling pools them."""

    def feature_shares(self, steps: int) -> Floats:
        """(distilled tokens, t): each distilled token lies on the steps of the tokens it was pooled from."""
        return self.module.network.distilled_shares(steps).double().numpy()


@MODELS.register(
    ModelCard(
        architecture="Informer with ProbSparse attention and distilling",
        source="Zhou et al. 2021 (arXiv 2012.07436); own module, keys sampled by a fixed per-call generator",
        attention="timestep",
        gradcam_layer="features",
    )
)
@dataclass(frozen=True, slots=True)
class Informer(TrainedEntry):
    """Sparse-attention forecaster over all channels with distilling and a one-shot decoder.

    width: of the tokens; heads: per layer, dividing width; layers: ProbSparse layers, with distilling between them;
    token: steps per token; factor: c of the paper (active queries and sampled keys are c ln m); key_seed: of the
    generator each call samples its keys from; the rest is the training schedule.
    """

    width: Annotated[int, Field(gt=0)] = 64
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 2
    token: Annotated[int, Field(gt=0)] = 4
    factor: Annotated[int, Field(gt=0)] = 3
    key_seed: Annotated[int, Field(ge=0)] = 42

    forecaster: ClassVar[type[TokenForecaster]] = InformerForecaster

    def __post_init__(self) -> None:
        check_heads(self)

    def network(self, layout: Layout) -> Network:
        """The network with fresh parameters."""
        return Network(layout, self.width, self.heads, self.layers, self.token, self.factor, self.key_seed)
