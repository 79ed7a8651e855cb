"""What the torch forecasters share: z-scoring inside the module, the training loop, weights and card on disk."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import nn

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, write_bytes, write_json
from explainbench.core.forecaster import Forecast, TaskShape
from explainbench.core.provenance import versions
from explainbench.core.windows import Channels, Windows

SCHEMA = 1
WEIGHTS = "model.safetensors"
CARD = "card.json"
FIELDS = {"architecture", "options", "shape", "channels", "weights", "weights_source"}
VALIDATION_BATCH = 256

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a network is built for: the task's shape, and which channels are known in advance (calendar features)."""

    shape: TaskShape
    names: tuple[str, ...]
    units: tuple[str, ...]
    known: tuple[bool, ...]

    @classmethod
    def of(cls, shape: TaskShape, channels: Channels) -> Self:
        """The layout of a task over `channels`."""
        return cls(shape, channels.names, channels.units, tuple(bool(flag) for flag in channels.known))

    @property
    def calendar(self) -> list[int]:
        """Indices of the channels known in advance."""
        return [index for index, known in enumerate(self.known) if known]


class Standardised(nn.Module, Generic[Network]):
    """Contexts (n, t, c) in dataset units -> forecasts (n, h) in the target's unit, around a network in z-units.

    The training series' mean and standard deviation are buffers, so they travel with the weights and their hash.
    """

    network: Network
    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, network: Network, mean: Floats, std: Floats, target: int) -> None:
        super().__init__()
        self.network = network
        self.target = target
        self.register_buffer("mean", torch.from_numpy(np.asarray(mean, dtype=np.float32)))
        constant = np.asarray(std) == 0.0  # a constant channel stays constant
        self.register_buffer("std", torch.from_numpy(np.where(constant, 1.0, std).astype(np.float32)))

    def z(self, context: torch.Tensor) -> torch.Tensor:
        """Contexts in z-units."""
        return (context - self.mean) / self.std

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.network(self.z(context)) * self.std[self.target] + self.mean[self.target]


@dataclass(frozen=True, eq=False)
class TorchForecaster:
    """A frozen torch module with its card. Its capabilities are the methods that a model file adds.

    module: eval mode, (n, t, c) in dataset units -> (n, h) in the target's unit;
    card: everything `card.json` says except what `save` adds (weights hash, library versions).
    """

    module: nn.Module
    card: Mapping[str, Any]

    def predict(self, context: Floats) -> Forecast:
        """Point forecasts for contexts (n, t, c) in dataset units. Pure: no draw, no state."""
        with torch.no_grad():
            return Forecast(self.module(as_tensor(context)).double().numpy())

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `card.json`; the card holds the hash of the weights and no clock."""
        state = {name: tensor.detach().clone().contiguous() for name, tensor in self.module.state_dict().items()}
        content = safetensors.torch.save(state)
        weights = {"file": WEIGHTS, "sha256": hashlib.sha256(content).hexdigest()}
        write_bytes(folder / WEIGHTS, content)
        write_json(folder / CARD, {**self.card, "weights": weights})

    def described(self, **more: Any) -> Self:
        """The same forecaster with more blocks in its card."""
        return replace(self, card={**self.card, **more})


@dataclass(frozen=True, eq=False)
class TokenForecaster(TorchForecaster):
    """A trained forecaster that encodes context steps as tokens: its attention and its feature map brought to steps.

    Its network offers `received(z)` (n, tokens), the attention that tokens receive from the forecast; `shares(t)`
    (tokens, t), rows summing to one; and `features`, the module whose output is the encoded tokens (n, tokens, d).
    """

    module: Standardised[Any]

    def attention(self, context: Floats) -> Floats:
        """(n, t): what the forecast receives from each step, a token's share spread evenly over its steps."""
        network = self.module.network
        with torch.no_grad():
            received = network.received(self.module.z(as_tensor(context)))
        return (received.double() @ network.shares(context.shape[1]).double()).numpy()

    @property
    def feature_layer(self) -> nn.Module:
        """The encoded tokens, one vector each."""
        return self.module.network.features

    def feature_shares(self, steps: int) -> Floats:
        """(tokens, t): where on the time axis the feature map's tokens lie."""
        return self.module.network.shares(steps).double().numpy()


def as_tensor(context: Floats) -> torch.Tensor:
    """float32 in C order, the one form in which contexts enter a module."""
    return torch.from_numpy(np.ascontiguousarray(context, dtype=np.float32))


def card_of(
    entry: Any,
    layout: Layout,
    training: Mapping[str, Any],
    *,
    source: str = "trained",
    licence: str = "Apache-2.0",
    libraries: tuple[str, ...] = ("torch",),
) -> dict[str, Any]:
    """The card of a freshly fitted entry: architecture with its hyper-parameters, layout, training record, licence."""
    return {
        "schema_version": SCHEMA,
        "architecture": architecture_name(entry),
        "options": options_of(entry),
        "shape": asdict(layout.shape),
        "channels": {"names": list(layout.names), "units": list(layout.units), "known": list(layout.known)},
        "training": dict(training),
        "weights_source": source,
        "licence": licence,
        "libraries": versions((*libraries, "numpy", "safetensors")),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def architecture_name(entry: Any) -> str:
    """The registered name of an entry: the name of its file."""
    return type(entry).__module__.rsplit(".", 1)[-1]


def options_of(entry: Any) -> dict[str, Any]:
    """An entry's options as its card holds them: a local folder by its name, so that no path enters an identity."""
    return {
        key: Path(value).name if isinstance(value, str) and Path(value).is_dir() else value
        for key, value in asdict(entry).items()
    }


def layout_of(card: Mapping[str, Any]) -> Layout:
    """The layout that a card describes."""
    channels = card["channels"]
    return Layout(
        TaskShape(**card["shape"]), tuple(channels["names"]), tuple(channels["units"]), tuple(channels["known"])
    )


def read_card(entry: Any, folder: Path) -> dict[str, Any]:
    """Read and check `card.json`. Raises BadInput when it describes another architecture or other hyper-parameters."""
    card = read_json(folder / CARD)
    name = architecture_name(entry)
    if not isinstance(card, dict) or card.get("schema_version") != SCHEMA or not card.keys() >= FIELDS:
        raise BadInput(f"{folder / CARD} is not a model card of schema {SCHEMA}; fit {name} again.")
    if card["architecture"] != name:
        raise BadInput(f"{folder} holds a {card['architecture']} model, not a {name}; give the folder of a {name}.")
    wanted = options_of(entry)
    stored = card["options"]
    different = [key for key in wanted if stored.get(key) != wanted[key]]
    if different:
        raise BadInput(
            f"{folder} was fitted with {_shown(stored, different)}, but params say {_shown(wanted, different)} "
            f"for {name}; fit it again."
        )
    return card


def read_weights(folder: Path, card: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of `model.safetensors`. Raises Corrupt when its bytes are not those the card was written for."""
    path = folder / card["weights"]["file"]
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist; run the stage that fits {card['architecture']} first.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != card["weights"]["sha256"]:
        raise Corrupt(
            f"{path} has SHA-256 {found[:12]}..., but its card says {card['weights']['sha256'][:12]}...; "
            "restore it or fit the model again."
        )
    return parse_weights(content, path)


def load_network(
    entry: Any, build: Callable[[Layout], Network], folder: Path
) -> tuple[Standardised[Network], dict[str, Any]]:
    """The frozen module and the card that a network's `save` wrote. Raises BadInput or Corrupt."""
    card = read_card(entry, folder)
    state = read_weights(folder, card)
    layout = layout_of(card)
    nothing = np.zeros(layout.shape.channels)
    with seeded(0):
        module = Standardised(build(layout), nothing, nothing, layout.shape.target)
    fill(module, state, folder / WEIGHTS)
    return module, {key: value for key, value in card.items() if key != "weights"}


def parse_weights(content: bytes, path: Path) -> dict[str, torch.Tensor]:
    """Parse safetensors bytes. Raises Corrupt when they are cut off or not safetensors."""
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise Corrupt(
            f"{path} is not a complete safetensors file ({error}); fetch or fit the weights again."
        ) from error


def fill(module: nn.Module, state: Mapping[str, torch.Tensor], where: Path) -> nn.Module:
    """Put `state` into `module`, all of it and nothing else, in eval mode. Raises BadInput on another architecture."""
    try:
        module.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{where} holds weights of another architecture ({reason}); give the matching ones.") from error
    return frozen(module)


def frozen(module: nn.Module) -> nn.Module:
    """The module in eval mode with no parameter asking for a gradient, so that a backward pass reaches inputs only."""
    return module.eval().requires_grad_(False)


@dataclass(frozen=True, slots=True)
class TrainedEntry(ABC):
    """What the entries fitted here share: the training schedule, and `fit` and `load` around the network they build.

    epochs: at most; learning_rate: of AdamW; batch_size: windows per step; patience: epochs without improvement before
    it stops.
    """

    epochs: Annotated[int, Field(gt=0)] = 6
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    batch_size: Annotated[int, Field(gt=0)] = 64
    patience: Annotated[int, Field(gt=0)] = 3

    forecaster: ClassVar[type[TokenForecaster]] = TokenForecaster

    @abstractmethod
    def network(self, layout: Layout) -> nn.Module:
        """The network with fresh parameters. Raises BadInput where the options do not fit the layout."""

    def fit(
        self, training: Windows, validation: Windows, shape: TaskShape, rng: np.random.Generator
    ) -> TokenForecaster:
        """Fit on training windows, stopping early on validation windows."""
        layout = Layout.of(shape, training.channels)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size, self.patience)
        module, record = fit_network(self.network, schedule, training, validation, layout, rng)
        return self.forecaster(module, card_of(self, layout, record))

    def load(self, folder: Path) -> TokenForecaster:
        """Load what `save` wrote. Raises BadInput (another architecture or other options) or Corrupt (hash)."""
        return self.forecaster(*load_network(self, self.network, folder))


def check_heads(entry: Any) -> None:
    """Raises BadInput unless the entry's width divides into its heads."""
    if entry.width % entry.heads:
        name = architecture_name(entry)
        raise BadInput(f"params: models.{name}: width {entry.width} does not divide into {entry.heads} heads.")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Parameter initialisation from `seed` alone: the global generator is put back afterwards; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Training: most epochs, AdamW learning rate (cosine to zero), windows per step, epochs without improvement."""

    epochs: int
    learning_rate: float
    batch_size: int
    patience: int


def fit_network(
    build: Callable[[Layout], Network],
    schedule: Schedule,
    training: Windows,
    validation: Windows,
    layout: Layout,
    rng: np.random.Generator,
) -> tuple[Standardised[Network], dict[str, Any]]:
    """Build a network in z-units and train it; returns the frozen module and its training record."""
    seed = int(rng.integers(2**62))
    with seeded(seed):
        target = layout.shape.target
        channels = training.channels
        module = Standardised(build(layout), channels.mean, channels.std, target)
        record = train(module, schedule, training, validation, torch.Generator().manual_seed(seed))
    frozen(module)
    return module, {"seed": seed, **record}


def train(
    module: Standardised,
    schedule: Schedule,
    training: Windows,
    validation: Windows,
    generator: torch.Generator,
) -> dict[str, Any]:
    """Minimise the Huber loss of z-scored targets with AdamW, keeping the weights of the best validation epoch.

    Every step sees the same number of windows, on one thread, so two processes give the same bits. The record
    holds losses per epoch in squared z-units, the best epoch, and whether patience ran out.
    """
    inputs, targets = as_tensor(training.context), as_tensor(training.target)
    held_inputs, held_targets = as_tensor(validation.context), as_tensor(validation.target)
    size = min(schedule.batch_size, len(inputs))
    steps = len(inputs) // size
    scale = module.std[module.target]

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.huber_loss(module(x) / scale, y / scale)

    optimiser = torch.optim.AdamW(module.parameters(), lr=schedule.learning_rate, weight_decay=1e-2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=schedule.epochs * steps)
    best, best_epoch = _validated(module, held_inputs, held_targets, loss_of), 0
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    fitted: list[float] = []
    held: list[float] = [best]
    for epoch in range(1, schedule.epochs + 1):
        module.train()
        order = torch.randperm(len(inputs), generator=generator)
        total = 0.0
        for step in range(steps):
            rows = order[step * size : (step + 1) * size]
            optimiser.zero_grad(set_to_none=True)
            loss = loss_of(inputs[rows], targets[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
            decay.step()
            total += float(loss.detach())
        fitted.append(total / steps)
        held.append(_validated(module, held_inputs, held_targets, loss_of))
        if held[-1] < best:
            best, best_epoch = held[-1], epoch
            state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        if epoch - best_epoch >= schedule.patience:
            break
    module.load_state_dict(state)
    return {
        "loss": "huber of z-scored targets",
        "optimiser": "AdamW, cosine learning rate",
        "windows": len(training),
        "windows_sha256": training.digest(),
        "validation_windows": len(validation),
        "validation_sha256": validation.digest(),
        "epochs": len(fitted),
        "best_epoch": best_epoch,
        "stopped_early": len(fitted) < schedule.epochs,
        "training_loss": fitted,
        "validation_loss": held,  # entry 0 is before the first epoch
    }


def _validated(
    module: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> float:
    module.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in zip(inputs.split(VALIDATION_BATCH), targets.split(VALIDATION_BATCH)):
            total += float(loss_of(x, y)) * len(x)
    return total / len(inputs)


def _shown(options: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key}={options.get(key)}" for key in keys)
