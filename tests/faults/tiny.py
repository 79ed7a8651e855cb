"""A tiny project, really simulated, fitted and scored: the whole pipeline in seconds."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from explainbench.core.params import Params, load_params
from explainbench.core.workspace import Workspace

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Project:
    """A project folder with data, windows and fitted models."""

    workspace: Workspace
    params: Params

    def output(self, folder: Path) -> Workspace:
        """A workspace that shares this project's data, windows and models and writes its own cells to `folder`."""
        folder.mkdir(parents=True)
        for name in ("build", "models"):
            (folder / name).symlink_to(self.workspace.output / name)
        return Workspace(self.workspace.root, folder)


def tiny(raw: dict) -> dict:
    """The smoke profile made smaller: one task, one model, three windows."""
    profile = raw["profiles"]["smoke"]
    energy = profile["suites"]["energy"]
    energy |= {"models": ["transformer"], "tasks": {"T1": {"windows_per_regime": 1}, "T2": {"windows_per_regime": 1}}}
    profile["fit"] = {"stride": 96, "allow_weak": True}
    profile["models"] = {"transformer": {"width": 8, "heads": 2, "layers": 1, "epochs": 1}}
    profile["methods"] = {"shap": {"coalitions": 128}, "lime": {"samples": 96}, "integrated_gradients": {"steps": 8}}
    profile["metrics"] = {
        "faithfulness": {"top": 3, "random_rankings": 3},
        "fidelity": {"draws": 20},
        "stability": {"draws": 1},
    }
    return raw


def build(root: Path) -> Project:
    """Data simulated, windows cut, one transformer fitted for T1 and T2, under the profile `smoke` of its params."""
    from explainbench.stages.data import cut_windows, simulate
    from explainbench.stages.fit import fit_model

    raw = tiny(yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8")))
    (root / "params.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    workspace = Workspace.find(root)
    params = load_params(workspace.params, "smoke")
    simulate(workspace, params)
    cut_windows(workspace, params)
    for task in params.suites.energy.tasks:
        fit_model(workspace, params, task, "transformer")
    return Project(workspace, params)
