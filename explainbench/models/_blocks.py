"""Network parts in z-units that several forecasters share."""

from __future__ import annotations

import torch
from torch import nn

from explainbench.models._torch import Layout

SEASON = 96  # steps of a day
BLOCK = 4  # forecast steps that one query answers: an hour


class Tokens(nn.Module):
    """Runs of `token` steps of all channels -> one vector each: a convolution whose stride is its width."""

    def __init__(self, layout: Layout, width: int, token: int) -> None:
        super().__init__()
        self.token = token
        self.missing = -layout.shape.context % token
        self.embed = nn.Linear(token * layout.shape.channels, width)
        self.position = nn.Parameter(torch.randn(-(-layout.shape.context // token), width) * 0.02)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> (n, tokens, d)."""
        if self.missing:  # the oldest token repeats the first step
            z = torch.cat([z[:, :1].expand(-1, self.missing, -1), z], 1)
        return self.embed(z.reshape(len(z), -1, self.embed.in_features)) + self.position


class HorizonQueries(nn.Module):
    """One-shot decoder: each hour of the horizon asks the encoded context by attention (after Bahdanau et al. 2015).

    The query of a block knows the calendar of the same time yesterday and its position in the horizon. Its answer
    corrects an anchor, a learnt combination per step of the last value and the value at the same time yesterday, so an
    untrained decoder is exactly the naive forecast (short horizons) or the seasonal-naive one (long horizons).
    """

    lagged: torch.Tensor

    def __init__(self, layout: Layout, width: int) -> None:
        super().__init__()
        shape = layout.shape
        season = min(SEASON, shape.context)
        blocks = -(-shape.horizon // BLOCK)
        self.target, self.horizon = shape.target, shape.horizon
        self.calendar = layout.calendar
        steps = shape.context - season + torch.arange(shape.horizon) % season
        self.register_buffer("lagged", steps, persistent=False)
        self.position = nn.Parameter(torch.randn(blocks, width) * width**-0.5)
        self.known = nn.Linear(len(self.calendar), width) if self.calendar else None
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.mix = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, BLOCK)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        anchor = torch.zeros(2, shape.horizon)
        anchor[0 if 2 * shape.horizon <= season else 1] = 1.0
        self.anchor = nn.Parameter(anchor)

    def forward(self, z: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Contexts (n, t, c) and their encoding (n, m, d) -> forecasts (n, h)."""
        query = self._query(z)
        heard = nn.functional.scaled_dot_product_attention(query, self.key(memory), self.value(memory))
        path = self.out(nn.functional.gelu(self.mix(torch.cat([heard, query], -1)))).flatten(1)[:, : self.horizon]
        target = z[:, :, self.target]
        return path + self.anchor[0] * target[:, -1:] + self.anchor[1] * target[:, self.lagged]

    def weights(self, z: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """The attention of `forward`: (n, blocks, m), rows sum to one."""
        query = self._query(z)
        return (query @ self.key(memory).transpose(1, 2) * query.shape[-1] ** -0.5).softmax(-1)

    def _query(self, z: torch.Tensor) -> torch.Tensor:
        query = self.position.expand(len(z), -1, -1)
        if self.known is None:
            return query
        return query + self.known(z[:, self.lagged[::BLOCK]][:, :, self.calendar])


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2): fused where only its output is wanted."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not divide into {heads} heads")
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        query, key, value = self._split(x)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The attention of `forward`: (n, heads, m, m), rows sum to one."""
        query, key, _ = self._split(x)
        return (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1)

    def _split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, m, d = x.shape
        return self.project(x).view(n, m, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind()


class EncoderBlock(nn.Module):
    """Pre-norm Transformer encoder layer (Xiong et al. 2020), feed-forward width twice the model's."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_feed = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm_feed(x))))

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The attention of `forward`: (n, heads, m, m), rows sum to one."""
        return self.attention.weights(self.norm_attention(x))


def rollout(attentions: list[torch.Tensor]) -> torch.Tensor:
    """Attention rollout through residual layers (Abnar & Zuidema 2020, eq. 1): (n, m, m), rows sum to one.

    attentions: per layer (n, heads, m, m); heads are averaged, and each layer counts half for its skip connection.
    """
    flow = torch.eye(attentions[0].shape[-1], dtype=attentions[0].dtype).expand(len(attentions[0]), -1, -1)
    for weights in attentions:
        flow = 0.5 * (weights.mean(1) @ flow + flow)
    return flow


def steps_of_tokens(context: int, token: int) -> torch.Tensor:
    """(tokens, t): the share of each token's weight that each of its input steps gets; rows sum to one.

    The oldest token is the short one where `token` does not divide the context.
    """
    tokens = -(-context // token)
    member = torch.arange(context).add(tokens * token - context) // token
    share = (member[None, :] == torch.arange(tokens)[:, None]).float()
    return share / share.sum(1, keepdim=True)


def steps_of_patches(context: int, patch: int, stride: int, patches: int) -> torch.Tensor:
    """(patches, t): each patch's weight in equal shares over its `patch` steps; rows sum to one.

    The last patch ends at the last step; steps older than the first patch get nothing.
    """
    starts = context - patch - stride * torch.arange(patches - 1, -1, -1)
    step = torch.arange(context)
    member = (step >= starts[:, None]) & (step < starts[:, None] + patch)
    return member.float() / patch
