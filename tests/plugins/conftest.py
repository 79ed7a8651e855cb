"""A small project with synthetic cells: real files, real hashes, no model and no data behind them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from explainbench.core.cell import Cell, CellResult, Score, Skipped, stream
from explainbench.core.files import write_json, write_npz
from explainbench.core.masking import Climatology
from explainbench.core.provenance import sha256_file, source_identity
from explainbench.core.record import CellName, CellSpec, Measured
from explainbench.core.windows import Channels, Windows
from explainbench.core.workspace import Workspace
from explainbench.data._manifest import dataset_sha256, write_manifest
from explainbench.stages.data import _packed
from explainbench.store import CellStore, StoredCell, write_lock

PER_REGIME = 4
STEPS, SEGMENT = 96, 8
NAMES = ("load_mw", "energy_price_usd_mwh", "temperature_c", "solar_mw", "wind_mw", "hour_sin")
MEASURED = Measured(
    seconds=1.5,
    model_seconds=1.2,
    peak_memory_mb=100.0,
    cpu="test",
    cpu_capability="AVX2",
    torch="2",
    threads=1,
    finished="2024-01-01T00:00:00Z",
)


def synthetic_windows() -> Windows:
    """Twelve days of a load that looks like one, four windows per regime."""
    n = 3 * PER_REGIME
    origin = np.datetime64("2024-01-08T08:00", "m") + np.arange(n) * np.timedelta64(25 * 60, "m")
    quarter = (np.arange(-STEPS, 0)[None, :] + np.arange(n)[:, None] * 100 + 32) % 96
    day = np.sin((quarter - 32) / 96 * 2 * np.pi)
    noise = stream(1, "noise").standard_normal((n, STEPS, 5))
    channels = [900 + 150 * day, 45 + 20 * day, 8 + 5 * day, np.clip(200 * day, 0, None), 120 + 0 * day]
    context = np.stack([*channels, np.sin(quarter / 96 * 2 * np.pi)], axis=-1)
    context[..., :5] += noise * np.array([8, 2, 0.5, 4, 15])
    limits = context.reshape(-1, 6)
    meta = Channels(
        NAMES,
        ("MW", "USD/MWh", "degC", "MW", "MW", "1"),
        (False,) * 5 + (True,),
        limits.mean(axis=0),
        limits.std(axis=0),
        limits.min(axis=0),
        limits.max(axis=0),
    )
    regime = np.array(["peak", "off_peak", "ramp"] * PER_REGIME)
    return Windows(context, context[:, :4, 0] + 5, regime, origin, meta)


def labels() -> np.ndarray:
    found = np.full((STEPS, 6), -1)
    runs = STEPS // SEGMENT
    for channel in range(5):
        found[:, channel] = channel * runs + np.arange(STEPS) // SEGMENT
    return found


@dataclass
class Project:
    """A workspace with the means to add cells to it."""

    workspace: Workspace
    windows: Windows

    def add(
        self, method: str = "shap", model: str = "lstm", *, seed: int = 42, shift: float = 0.0, protocol="test-1"
    ) -> StoredCell:
        cell = Cell("energy", "T1", model, method)
        rng = stream(seed, str(cell))
        n, groups = len(self.windows), 60
        weights = self.workspace.models / "T1" / model / "model.safetensors"
        if not weights.is_file():
            weights.parent.mkdir(parents=True)
            weights.write_bytes(f"weights of {model}".encode())
            card = {
                "schema_version": 1,
                "architecture": model,
                "dataset_sha256": dataset_sha256(self.workspace.root, "bqeb_standin"),
                "training": {"windows": 10, "windows_sha256": "0" * 64, "epochs": 2},
                "weights_source": "trained",
                "weights": {"file": "model.safetensors", "sha256": sha256_file(weights)},
            }
            write_json(weights.parent / "card.json", card)
        runs = 1 if method == "integrated_gradients" else 2
        spec = CellSpec(
            protocol=protocol,
            cell=CellName(suite="energy", task="T1", model=model, method=method),
            seed=seed,
            runs=runs,
            parameters={
                "task": {"target": "load_mw", "context": 96, "horizon": 4, "segment": 8},
                "masker": "climatology",
                "method": {"coalitions": 512},
                "metrics": {"faithfulness": {"share": 0.2}, "stability": {}},
            },
            dataset="bqeb_standin",
            dataset_sha256=dataset_sha256(self.workspace.root, "bqeb_standin"),
            windows_sha256=self.windows.digest(),
            model_card_sha256=sha256_file(weights.parent / "card.json"),
            weights_sha256=sha256_file(weights),
            weights_source="trained",
            method_card={
                "title": method.upper(),
                "category": "baseline" if method == "random" else "attribution",
                "deterministic": runs == 1,
                "vector": "signed",
                "surrogate": "additive",
            },
            sources=source_identity(["explainbench.core.errors", "explainbench.core.cell"]),
            libraries={"numpy": np.__version__},
        )
        importance = rng.standard_normal((n, groups)) * np.r_[np.linspace(1, 30, 12), np.full(48, 3.0)]
        painted = np.where(labels() >= 0, importance[:, np.maximum(labels(), 0)] / SEGMENT, 0.0)
        explanations = {
            "attribution": np.repeat(painted[None], runs, axis=0),
            "importance": importance,
            "output": self.windows.target.mean(axis=1),
            "filled_output": self.windows.target.mean(axis=1) - importance.sum(axis=1),
            "context": self.windows.context,
            "regime": self.windows.regime,
            "origin": self.windows.origin,
            "channels": np.array(NAMES),
            "labels": labels(),
            "unit": np.array("MW"),
        }
        raw = rng.gamma(2.0, 8.0, n) + shift
        stability = np.clip(rng.normal(0.7, 0.1, n), 0, 1)
        scores = {
            "faithfulness": Score(raw),
            "faithfulness_skill": Score(np.r_[np.nan, raw[1:] / 40]),
            "stability": Score(stability, stability),
        }
        skipped = {"human_interpretability": Skipped("pending", "no ratings have been imported")}
        if method in ("shap", "lime"):
            fidelity = np.clip(rng.normal(0.8, 0.05, n), 0, 1)
            scores["fidelity"] = Score(fidelity, fidelity)
        else:
            skipped["fidelity"] = Skipped("not_applicable", "no surrogate")
        stored = CellStore(self.workspace.cells).write(
            spec,
            CellResult(cell, scores, skipped),
            self.windows,
            explanations,
            {"seed": seed, "streams": {"explain": [1, 2, 3]}},
            tuple(f"g{i}" for i in range(groups)),
            (512.0, 0.0),
            {"convergence": 1e-6},
            MEASURED,
        )
        (stored.folder / "figures").mkdir()
        (stored.folder / "figures" / "attribution.png").write_bytes(
            b"drawn"
        )  # drawing takes a second: not in every test
        return stored

    def lock(self, *cells: StoredCell) -> None:
        write_lock(self.workspace.lock, {one.record.cell_id: one.digest for one in cells})

    def git(self, *arguments: str) -> str:
        command = [
            "git",
            "-C",
            str(self.workspace.root),
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            *arguments,
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> str:
        if not (self.workspace.root / ".git").exists():
            self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "state")
        return self.git("rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def no_tracking_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the developer's shell says."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project folder with params, one data file, its manifest and data.dvc, windows; no cells yet."""
    return new_project(tmp_path / "project")


@pytest.fixture(scope="session")
def make_project() -> Callable[[Path], Project]:
    """`project`, for fixtures that live longer than one test."""
    return new_project


def new_project(root: Path) -> Project:
    root.mkdir()
    (root / "params.yaml").write_text("protocol: test-1\nseed: 42\n")
    (root / ".gitignore").write_text("mlflow.db*\nmlartifacts/\nbuild/\n")
    build_data(root)
    windows = synthetic_windows()
    workspace = Workspace.find(root)
    build_windows(workspace, windows)
    return Project(workspace, windows)


def build_data(root: Path) -> None:
    folder = root / "data" / "bqeb_standin"
    folder.mkdir(parents=True)
    (folder / "series.csv").write_bytes(b"stamp,load_mw\n2024-01-01T00:00Z,900\n")
    write_manifest(root)
    md5 = hashlib.md5((folder / "series.csv").read_bytes()).hexdigest()
    listing = json.dumps([{"md5": md5, "relpath": "bqeb_standin/series.csv"}])
    whole = hashlib.md5(listing.encode()).hexdigest() + ".dir"
    (root / "data.dvc").write_text(f"outs:\n- md5: {whole}\n  size: 50\n  nfiles: 1\n  hash: md5\n  path: data\n")
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")


def build_windows(workspace: Workspace, windows: Windows) -> None:
    """As `stages.data.cut_windows` leaves them."""
    climatology = Climatology(np.zeros((2, 96, 6)), np.zeros((96, 6)), np.array([False]))
    write_npz(workspace.windows / "T1.npz", _packed(windows, climatology))
    card = {
        "windows_sha256": windows.digest(),
        "target_std": 1.0,
        "dataset": "bqeb_standin",
        "dataset_sha256": dataset_sha256(workspace.root, "bqeb_standin"),
        "shortfall": {},
    }
    write_json(workspace.windows / "T1.json", card)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initialised, empty MLflow database: importing and migrating takes seconds, so once."""
    from mlflow_plugins._mlflow import open_store

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    path.touch()
    assert open_store(f"sqlite:///{path}", "nothing") is None
    return path


@pytest.fixture
def tracking(project: Project, empty_store: Path) -> Path:
    """The project's own tracking store, empty."""
    return Path(shutil.copy(empty_store, project.workspace.output / "mlflow.db"))


@pytest.fixture
def cells(project: Project) -> Callable[[], list[StoredCell]]:
    def make() -> list[StoredCell]:
        made = [project.add("shap"), project.add("lime", shift=3.0), project.add("integrated_gradients", shift=6.0)]
        project.lock(*made)
        return made

    return make
