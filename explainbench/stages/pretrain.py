"""`pretrain`: the stand-ins of the foundation models, on a synthetic corpus that contains no series of any dataset."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput
from explainbench.core.files import write_json
from explainbench.core.forecaster import ZeroShotEntry
from explainbench.core.params import Params
from explainbench.core.registry import MODELS
from explainbench.core.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Pretrained:
    """One pre-trained stand-in: where it lies and the CPU seconds it took."""

    folder: Path
    seconds: float


def zero_shot_models(params: Params) -> tuple[str, ...]:
    """The models of the energy suite that are pre-trained rather than fitted and use their stand-in."""
    found = []
    for name in params.suites.energy.models:
        entry = MODELS.build(name, params.models.get(name))
        if isinstance(entry, ZeroShotEntry) and entry.checkpoint is None:
            found.append(name)
    return tuple(found)


def pretrain_model(workspace: Workspace, params: Params, model_name: str) -> Pretrained:
    """Pre-train one stand-in and save it for the stage `fit`. Raises BadInput for a model that is not pre-trained.

    With official weights named in params there is nothing to train: the folder then only says so.
    """
    began = time.process_time()
    entry = MODELS.build(model_name, params.models.get(model_name))
    if not isinstance(entry, ZeroShotEntry):
        raise BadInput(f"{model_name} is fitted on the training series, not pre-trained; run `explainbench fit`.")
    folder = workspace.pretrained / model_name
    if entry.checkpoint is not None:  # nothing to pre-train; the stage still leaves its folder, so a pipeline goes on
        write_json(folder / "card.json", {"official": Path(entry.checkpoint).name, "note": "no stand-in was trained"})
        return Pretrained(folder, time.process_time() - began)
    entry.pretrain(stream(params.seed, "pretrain", model_name)).save(folder)
    return Pretrained(folder, time.process_time() - began)
