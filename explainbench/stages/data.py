"""Dataset to windows: simulate or import, verify, cut the benchmark windows, and hand tasks and training splits out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from explainbench.core.arrays import Bools, Floats, Stamps, Texts
from explainbench.core.dataset import DatasetCard, Series, TaskData
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, read_npz, write_bytes, write_json, write_npz
from explainbench.core.masking import Climatology
from explainbench.core.params import Params, TaskParams
from explainbench.core.registry import DATASETS
from explainbench.core.windows import Channels, Windows
from explainbench.core.workspace import Workspace
from explainbench.data import _expectations, _manifest, _plausibility, _sampling


def simulate(workspace: Workspace, params: Params) -> dict[str, Any]:
    """Write the simulated dataset of the energy suite and the manifest of data/. Raises BadInput for a real dataset."""
    name = params.suites.energy.dataset
    entry: Any = DATASETS.build(name)
    if not hasattr(entry, "simulate"):
        raise BadInput(f"dataset {name!r} is not simulated; bring its file in with `explainbench data import`.")
    entry.simulate(workspace.data / name)
    manifest = _manifest.write_manifest(workspace.root)
    return {"dataset": name, "files": manifest["files"]}


def import_table(workspace: Workspace, file: Path, name: str, mapping: Mapping[str, str]) -> dict[str, Any]:
    """Check a user's CSV or Parquet file and bring it in as dataset `name` (bqeb or custom), whole or not at all.

    mapping: our column names -> the file's, `timestamp` among them. Raises BadInput with the row and column at fault.
    """
    entry: Any = DATASETS.build(name)
    if not hasattr(entry, "bring"):
        raise BadInput(f"dataset {name!r} is simulated, not imported; import your file with --name custom.")
    folder = workspace.data / name
    entry.bring(file, mapping, folder)
    manifest = _manifest.write_manifest(workspace.root)
    prefix = f"data/{name}/"
    return {
        "dataset": name,
        "benchmark": _span(entry.benchmark(folder)),
        "training": [_span(series) for series in entry.training(folder)],
        "channels": list(entry.benchmark(folder).names),
        "files": {key: entry for key, entry in manifest["files"].items() if key.startswith(prefix)},
    }


def verify_data(workspace: Workspace, params: Params) -> dict[str, Any]:
    """Check data/ against its manifest and the dataset against its expectations, and write what was found.

    Writes results/validation/<dataset>.json and .html, and plausibility.png where the channels of a grid are there.
    Raises Corrupt (a file is not the one listed) or BadInput (column, rows and rule that is broken).
    """
    energy = params.suites.energy
    _manifest.verify_manifest(workspace.root)
    digest = _manifest.dataset_sha256(workspace.root, energy.dataset)
    card = DATASETS.card(energy.dataset)
    entry = DATASETS.build(energy.dataset)
    folder = workspace.data / energy.dataset
    benchmark, training = entry.benchmark(folder), entry.training(folder)
    spans = read_json(folder / "card.json")
    tables = [_expectations.series_table("benchmark series", benchmark, spans["benchmark"]["rows"])]
    for number, (series, span) in enumerate(zip(training, spans["training"], strict=True), start=1):
        tables.append(_expectations.series_table(f"training series {number}", series, span["rows"]))
    sound = _expectations.validate(energy.dataset, tables)
    if sound["success"]:  # regimes are defined only on a regular, finite series
        kinds = {}
        for name, task in energy.tasks.items():
            limits = _sampling.thresholds(training, task)
            kinds[name] = _sampling.cut([benchmark], task, _sampling.channels(training), _sampling.HOUR, limits).regime
        covered = _expectations.validate(energy.dataset, _expectations.coverage_tables(kinds, _sampling.REGIMES))
        sound["tables"] |= covered["tables"]
        sound["success"] = covered["success"]
    result = {"schema_version": 1, "version": card.version, "dataset_sha256": digest} | sound
    target = workspace.results / "validation"
    write_json(target / f"{energy.dataset}.json", result)
    picture = _plausibility.plausibility_png(training[-1], benchmark, card.banner or card.title)
    if picture is not None:
        write_bytes(target / "plausibility.png", picture)
    described = {"version": card.version, "source": card.source, "licence": card.licence, "SHA-256": digest}
    if card.banner is not None:
        described = {"note": card.banner} | described
    text = _expectations.page(result, described, None if picture is None else "plausibility.png")
    write_bytes(target / f"{energy.dataset}.html", text.encode())
    sentence = _expectations.failure(result)
    if sentence is not None:
        raise BadInput(f"{sentence} The whole list is in {target / energy.dataset}.html; correct the data.")
    return result


def cut_windows(workspace: Workspace, params: Params) -> dict[str, Any]:
    """Cut the stratified benchmark windows of every task into build/windows/<task>.npz and its card <task>.json.

    Returns {task: card}. Raises BadInput where the series holds no window.
    """
    energy = params.suites.energy
    entry = DATASETS.build(energy.dataset)
    folder = workspace.data / energy.dataset
    digest = _manifest.dataset_sha256(workspace.root, energy.dataset)
    raw = entry.benchmark(folder)
    benchmark = _sampling.with_calendar(raw)
    training = [_sampling.with_calendar(series) for series in entry.training(folder)]
    described = _sampling.channels(training)
    climatology = _sampling.climatology(training)
    cards = {}
    for name, task in energy.tasks.items():
        limits = _sampling.thresholds(training, task)
        sample = _draw(params, name, benchmark, limits)
        truth = entry.truth(folder, task, benchmark.stamps[sample.starts])
        if truth is not None:  # calendar channels drive nothing by themselves
            known = np.zeros((*truth.shape[:2], len(described) - truth.shape[2]))
            truth = _sampling.settled(np.concatenate([truth, known], axis=2))
        windows = _sampling.windows(benchmark, task, described, sample.starts, sample.regime, truth)
        values = np.concatenate([series.values[:, described.index(task.target)] for series in training])
        write_npz(workspace.windows / f"{name}.npz", _packed(windows, climatology))
        cards[name] = {
            "schema_version": 1,
            "task": name,
            "dataset": energy.dataset,
            "dataset_sha256": digest,
            "windows_sha256": windows.digest(),
            "target": task.target,
            "target_std": float(_sampling.settled(values.std())),
            "thresholds": {"ramp": round(limits.ramp, 6), "peak": round(limits.peak, 6)},
            "windows": len(windows),
            "effective_n": sample.effective_n,
            "stride": sample.stride,
            "available": sample.available,
            "drawn": {regime: int((sample.regime == regime).sum()) for regime in _sampling.REGIMES},
            "shortfall": sample.shortfall,
        }
        write_json(workspace.windows / f"{name}.json", cards[name])
    return cards


def load_task(workspace: Workspace, task_name: str) -> TaskData:
    """What every cell of a task is scored on, as `cut_windows` wrote it. Raises BadInput or Corrupt."""
    path = workspace.windows / f"{task_name}.npz"
    card = read_json(workspace.windows / f"{task_name}.json")
    windows, climatology = _unpacked(read_npz(path))
    found = windows.digest()
    if found != card["windows_sha256"]:
        raise Corrupt(
            f"{path} has changed: its card expects windows {card['windows_sha256']}, found {found}; cut them again."
        )
    return TaskData(
        windows, climatology, card["target_std"], card["dataset"], card["dataset_sha256"], card["shortfall"]
    )


def training_split(workspace: Workspace, params: Params, task_name: str) -> tuple[Windows, Windows]:
    """Training and validation windows of a task: the last share of every training series validates.

    Windows are cut `fit.stride` steps apart inside either part, so no row is in both.
    """
    energy = params.suites.energy
    task = _task(params, task_name)
    entry = DATASETS.build(energy.dataset)
    training = [_sampling.with_calendar(series) for series in entry.training(workspace.data / energy.dataset)]
    described = _sampling.channels(training)
    limits = _sampling.thresholds(training, task)
    share = DATASETS.card(energy.dataset).validation_share or params.fit.validation_share
    parts = [_sampling.split(series, share) for series in training]
    fitted = _sampling.cut([early for early, _ in parts], task, described, params.fit.stride, limits)
    validation = _sampling.cut([late for _, late in parts], task, described, params.fit.stride, limits)
    for windows, part in ((fitted, "training"), (validation, "validation")):
        if len(windows) == 0:
            raise BadInput(
                f"task {task_name}: the {part} part of {energy.dataset!r} is too short for a window of "
                f"{task.context} + {task.horizon} steps; give a longer series."
            )
    return fitted, validation


def quality_windows(workspace: Workspace, params: Params, task_name: str) -> Windows:
    """Windows all over the benchmark series, `fit.stride` steps apart: forecasts are measured on them, never fitted."""
    energy = params.suites.energy
    task = _task(params, task_name)
    entry = DATASETS.build(energy.dataset)
    folder = workspace.data / energy.dataset
    training = [_sampling.with_calendar(series) for series in entry.training(folder)]
    benchmark = _sampling.with_calendar(entry.benchmark(folder))
    limits = _sampling.thresholds(training, task)
    return _sampling.cut([benchmark], task, _sampling.channels(training), params.fit.stride, limits)


def describe(workspace: Workspace, params: Params) -> dict[str, Any]:
    """What the dataset is: card, series, channels with their training statistics, and windows per task and regime."""
    energy = params.suites.energy
    card: DatasetCard = DATASETS.card(energy.dataset)
    entry = DATASETS.build(energy.dataset)
    folder = workspace.data / energy.dataset
    benchmark = entry.benchmark(folder)
    training = entry.training(folder)
    stats = _sampling.channels(training)
    tasks = {}
    for name, task in energy.tasks.items():
        limits = _sampling.thresholds(training, task)
        sample = _draw(params, name, benchmark, limits)
        tasks[name] = {
            "target": task.target,
            "windows": len(sample.starts),
            "effective_n": sample.effective_n,
            "available": sample.available,
            "shortfall": sample.shortfall,
            "thresholds": {"ramp": limits.ramp, "peak": limits.peak},
        }
    return {
        "dataset": energy.dataset,
        "title": card.title,
        "version": card.version,
        "source": card.source,
        "licence": card.licence,
        "synthetic": card.synthetic,
        "banner": card.banner,
        "sha256": _manifest.dataset_sha256(workspace.root, energy.dataset),
        "benchmark": _span(benchmark),
        "training": [_span(series) for series in training],
        "channels": {
            channel: {
                "unit": stats.units[c],
                "mean": float(stats.mean[c]),
                "std": float(stats.std[c]),
                "low": float(stats.low[c]),
                "high": float(stats.high[c]),
            }
            for c, channel in enumerate(stats.names)
        },
        "calendar": list(_sampling.CALENDAR),
        "tasks": tasks,
    }


def _task(params: Params, name: str) -> TaskParams:
    tasks = params.suites.energy.tasks
    if name not in tasks:
        raise BadInput(f"task {name!r} is not in params.yaml; its tasks are {', '.join(tasks)}.")
    return tasks[name]


def _draw(params: Params, name: str, benchmark: Series, limits: _sampling.Thresholds) -> _sampling.Sample:
    energy = params.suites.energy
    return _sampling.draw(
        benchmark,
        energy.tasks[name],
        limits,
        params.seed,
        energy.dataset,
        name,
        overlap=energy.overlapping_windows,
    )


def _span(series: Series) -> dict[str, Any]:
    return {"first": str(series.stamps[0]), "last": str(series.stamps[-1]), "rows": len(series.stamps)}


def _packed(windows: Windows, climatology: Climatology) -> dict[str, Any]:
    channels = windows.channels
    arrays: dict[str, Any] = {
        "context": windows.context,
        "target": windows.target,
        "regime": windows.regime,
        "origin": windows.origin,
        "channel_names": np.asarray(channels.names),
        "channel_units": np.asarray(channels.units),
        "channel_known": np.asarray(channels.known),
        "channel_mean": channels.mean,
        "channel_std": channels.std,
        "channel_low": channels.low,
        "channel_high": channels.high,
        "climatology_table": climatology.table,
        "climatology_series": climatology.series,
        "climatology_weekend": climatology.weekend,
    }
    return arrays if windows.truth is None else arrays | {"truth": windows.truth}


def _unpacked(arrays: Mapping[str, Any]) -> tuple[Windows, Climatology]:
    channels = Channels(
        tuple(arrays["channel_names"].tolist()),
        tuple(arrays["channel_units"].tolist()),
        tuple(arrays["channel_known"].tolist()),
        *(cast(Floats, arrays[f"channel_{name}"]) for name in ("mean", "std", "low", "high")),
    )
    windows = Windows(
        context=cast(Floats, arrays["context"]),
        target=cast(Floats, arrays["target"]),
        regime=cast(Texts, arrays["regime"]),
        origin=cast(Stamps, arrays["origin"]),
        channels=channels,
        truth=arrays.get("truth"),
    )
    climatology = Climatology(
        arrays["climatology_table"], arrays["climatology_series"], cast(Bools, arrays["climatology_weekend"])
    )
    return windows, climatology
