"""Deployment contexts: budgets, needs, and the changes of inputs that can be acted on (paper 000, section 5 and T3)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from explainbench.core.arrays import Bools, Floats
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.explanation import MethodCard
from explainbench.core.windows import Windows

RULES = Path(__file__).parent / "rules" / "contexts-reconstructed-v1"
SLACK = 1e-9  # z-units: a change smaller than this is none

Need = Literal["no_gradients", "no_hooks", "no_stored_data", "deterministic"]
Privacy = Literal["nothing", "background"]


class Part(BaseModel):
    """A part of a context: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Quantity(Part):
    """A positive number with where it comes from; `illustrative` where it is our choice."""

    value: Annotated[float, Field(gt=0.0)]
    source: Annotated[str, Field(min_length=3)]


class ChannelActions(Part):
    """What may be changed of one channel, in the last `last_steps` steps of the context.

    relative: largest change, as a share of the larger of the value itself and the channel's standard deviation;
    ramp: largest step-to-step change of the change, in standard deviations; sign: the direction allowed.
    """

    last_steps: Annotated[int, Field(gt=0)]
    relative: Annotated[float, Field(gt=0.0)]
    ramp: Annotated[float, Field(gt=0.0)] | None = None
    sign: Literal["both", "decrease", "increase"] = "both"


class Context(Part):
    """One deployment context, a YAML file named like it.

    latency_seconds: budget of one explanation; memory_mb, energy_joules: references of the memory and energy terms;
    needs: what the device asks of a method; actions: channel -> the feasible set A.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    version: str
    title: str
    latency_seconds: Quantity
    memory_mb: Quantity
    energy_joules: Quantity
    needs: tuple[Need, ...] = ()
    actions_source: Annotated[str, Field(min_length=3)]
    actions: Annotated[dict[str, ChannelActions], Field(min_length=1)]

    def feasible(self, change: Floats, windows: Windows) -> Bools:
        """Whether each change (n, m, t, c), in z-units, lies in the action set A (paper 000, eq. 5): (n, m).

        Raises NotApplicable where the dataset has none of the channels that may change.
        """
        channels = windows.channels
        known = [name for name in self.actions if name in channels.names]
        if not known:
            raise NotApplicable(f"context {self.name} acts on {', '.join(self.actions)}, none of which the dataset has")
        steps = change.shape[2]
        fixed = np.ones(change.shape[2:], dtype=bool)
        good = np.ones(change.shape[:2], dtype=bool)
        for name in known:
            action, column = self.actions[name], channels.index(name)
            fixed[max(0, steps - action.last_steps) :, column] = False
            moved, std = change[..., column], channels.std[column]
            size = np.maximum(np.abs(windows.context[:, None, :, column]), std)
            good &= (np.abs(moved) * std <= action.relative * size + SLACK * std).all(axis=2)
            if action.ramp is not None:
                good &= (np.abs(np.diff(moved, axis=2, prepend=0.0)) <= action.ramp + SLACK).all(axis=2)
            if action.sign != "both":
                upward = 1.0 if action.sign == "increase" else -1.0
                good &= (moved * upward >= -SLACK).all(axis=2)
        return good & (np.abs(change[:, :, fixed]) <= SLACK).all(axis=2)

    def met(self, card: MethodCard) -> float:
        """The share of the context's needs that a method meets, by what its card declares; 1 where there is none."""
        meets = {
            "no_gradients": "HasTorchModule" not in card.needs and card.cost != "gradient",
            "no_hooks": not {"HasAttention", "HasFeatureMap"} & set(card.needs),
            "no_stored_data": card.stores == "nothing",
            "deterministic": card.deterministic,
        }
        return float(np.mean([meets[need] for need in self.needs])) if self.needs else 1.0


def privacy(card: MethodCard) -> float:
    """1 where a method stores no data, 0.5 where it stores background data; no registered method sends data away."""
    return 1.0 if card.stores == "nothing" else 0.5


def load_context(name: str, folder: Path) -> Context:
    """The context `name`: one that is shipped, or a YAML file relative to `folder`. Raises BadInput."""
    shipped = sorted(path.stem for path in RULES.glob("*.yaml"))
    path = RULES / f"{name}.yaml" if name in shipped else folder / name
    try:
        found = Context.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise BadInput(
            f"params: contexts: {name!r} is no shipped context ({', '.join(shipped)}) and {path} is no file; give one."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {str(error).splitlines()[0]}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path}: {where}: {first['msg']}.") from error
    if path.stem != found.name:
        raise BadInput(f"{path} says it is context {found.name!r}; a context is named like its file.")
    return found
