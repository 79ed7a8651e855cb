"""Table 13, the reproducibility checklist (paper 000, section 12): every tick is computed from files, none asserted.

The table of the paper is lost; its items are reconstructed from section 12 and from what this project promises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Literal

import yaml

from explainbench.analysis.normalise import SHIPPED
from explainbench.core.errors import ExplainBenchError
from explainbench.core.provenance import sha256_file, sha256_json, source_identity
from explainbench.data._manifest import verify_manifest
from explainbench.report.source import Source
from explainbench.store import StoredCell, first_problem

Verdict = Literal["yes", "no", "open"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `yes`, `no`, or `open` where it cannot be decided yet; the evidence in a sentence."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True, slots=True)
class Tick:
    """One row of the checklist. files: where the evidence lies; command: checks it by hand."""

    area: str
    item: str
    finding: Finding
    files: tuple[str, ...]
    command: str


def checklist(source: Source) -> tuple[Tick, ...]:
    """All rows, in the order of the paper's section 12: what is inherited first, the two extensions last."""
    return tuple(Tick(area, item, check(source), files, command) for area, item, check, files, command in _ITEMS)


def _data_bytes(source: Source) -> Finding:
    try:
        files = verify_manifest(source.workspace.root)
    except ExplainBenchError as error:
        return Finding("no", str(error).replace(str(source.workspace.root), "."))
    return Finding("yes", f"{len(files)} data files re-hashed, all equal to the manifest")


def _data_valid(source: Source) -> Finding:
    if source.validation is None:
        return Finding("open", "no validation report; the stage verify_data has not run here")
    rules = sum(len(table["rules"]) for table in source.validation["tables"].values())
    digests = {stored.record.spec.dataset_sha256 for stored in source.cells.values()}
    if not source.validation["success"]:
        return Finding("no", "the validation report names broken rules")
    if digests - {source.validation["dataset_sha256"]}:
        return Finding("no", "cells were computed on another data set than the one validated")
    return Finding("yes", f"{rules} rules hold on the data set of every cell")


def _windows(source: Source) -> Finding:
    if not source.cells:
        return _no_cells()
    counts = []
    for task in source.tasks:
        digests = {one.record.spec.windows_sha256 for cell, one in source.cells.items() if cell.task == task}
        card = source.windows.get(task, {})
        if len(digests) > 1 or (card and digests - {card["windows_sha256"]}):
            return Finding("no", f"cells of {task} were scored on different windows")
        block = source.params.suites.energy.tasks[task]
        stride = card.get("stride")
        if stride is None:
            return Finding("open", f"the window card of {task} is not here, so nothing shows that windows are disjoint")
        if stride < block.context + block.horizon:
            return Finding("no", f"windows of {task} overlap: stride {stride}")
        counts.append(f"{task}: {card['windows']} disjoint windows")
    return Finding("yes", "; ".join(counts) + "; their hash is in every record")


def _protocol(source: Source) -> Finding:
    def differs(stored: StoredCell) -> bool:
        spec = stored.record.spec
        return (spec.protocol, spec.seed) != (source.params.protocol, source.params.seed)

    return _every_cell(
        source, differs, f"protocol {source.params.protocol} and seed {source.params.seed} in every record"
    )


def _bounds(source: Source) -> Finding:
    path = SHIPPED / f"{source.params.protocol}.json"
    if not path.is_file():
        return Finding("open", f"no bounds are frozen for {source.params.protocol}; run `explainbench freeze`")
    return Finding("yes", f"bounds {source.params.protocol}, SHA-256 {sha256_file(path)[:16]}")


def _grid(source: Source) -> Finding:
    wanted = {item.cell for item in source.grid if item.obstacle is None and not item.baseline}
    energy = source.params.suites.energy
    declared = {(task, model, method) for task in energy.tasks for model in energy.models for method in energy.methods}
    if declared != {
        (one.task, one.model, one.method) for one in (item.cell for item in source.grid if not item.baseline)
    }:
        return Finding("no", "the grid was evaluated with other tasks, models or methods than params.yaml lists")
    missing = sorted(map(str, wanted - set(source.cells)))
    excluded = {(item.cell.model, item.cell.method) for item in source.grid if item.obstacle is not None}
    if missing:
        return Finding("no", f"{len(missing)} of {len(wanted)} cells are not finished, the first is {missing[0]}")
    return Finding(
        "yes", f"{len(wanted)} of {len(wanted)} cells finished; {len(excluded)} excluded pairs, each with a reason"
    )


def _determinism(source: Source) -> Finding:
    def silent(stored: StoredCell) -> bool:
        return not isinstance(stored.record.spec.method_card.get("deterministic"), bool)

    cards = [one.record.spec.method_card for one in source.cells.values()]
    count = sum(bool(card.get("deterministic")) for card in cards)
    return _every_cell(
        source, silent, f"declared in every record: {count} deterministic, {len(cards) - count} stochastic"
    )


def _seeds(source: Source) -> Finding:
    def lacking(stored: StoredCell) -> bool:
        spec, seeds = stored.record.spec, stored.seeds()
        runs = 1 if spec.method_card.get("deterministic") else source.params.runs
        return spec.runs != runs or seeds.get("seed") != spec.seed or not seeds.get("streams")

    stochastic = sum(not one.record.spec.method_card.get("deterministic") for one in source.cells.values())
    return _every_cell(
        source, lacking, f"R = {source.params.runs} runs and their seeds for {stochastic} stochastic cells"
    )


def _artifacts(source: Source) -> Finding:
    if not source.cells:
        return _no_cells()
    for stored in source.cells.values():
        problem = first_problem(stored)
        if problem is not None:
            return Finding("no", problem.replace(str(source.workspace.output), "."))
    return Finding("yes", f"scores, explanations and seeds of {len(source.cells)} cells re-hashed")


def _trust_root(source: Source) -> Finding:
    if not source.cells:
        return _no_cells()
    absent = set(source.lock) - {one.record.cell_id for one in source.cells.values()}
    if absent or source.refused:
        first = source.refused[0] if source.refused else f"cell {sorted(absent)[0][:16]} is not in the store"
        return Finding("no", first)
    return Finding("yes", f"{len(source.lock)} record digests equal cells.lock.json")


def _weights(source: Source) -> Finding:
    if not source.cells or not source.cards:
        return Finding("open", "the fitted models are not here; run `dvc pull fit pretrain adapt`")
    hashed = 0
    for (task, model), card in source.cards.items():
        weights = card.get("weights", {})
        path = source.workspace.models / task / model / str(weights.get("file", ""))
        if path.is_file():
            hashed += 1
            if sha256_file(path) != weights.get("sha256"):
                return Finding("no", f"the weights of {model} on {task} are not those of its card")
        cells = [one.record.spec for cell, one in source.cells.items() if (cell.task, cell.model) == (task, model)]
        if {spec.weights_sha256 for spec in cells} - {weights.get("sha256")}:
            return Finding("no", f"cells of {model} on {task} used other weights than its card names")
    return Finding("yes", f"{hashed} weight files re-hashed; every record names the weights of its model card")


def _weights_source(source: Source) -> Finding:
    sources = sorted({one.record.spec.weights_source for one in source.cells.values()})
    return _every_cell(
        source, lambda stored: not stored.record.spec.weights_source, f"in every record: {', '.join(sources)}"
    )


def _pinned(source: Source) -> Finding:
    path = source.workspace.root / "requirements.lock"
    if not path.is_file():
        return Finding("no", "there is no requirements.lock")
    blocks = [block for block in re.split(r"\n(?=[A-Za-z0-9])", path.read_text(encoding="utf-8")) if "==" in block]
    bare = [block.split("==")[0] for block in blocks if "--hash=sha256:" not in block]
    if bare or not blocks:
        return Finding("no", f"without a hash: {', '.join(bare) or 'everything'}")
    return Finding("yes", f"{len(blocks)} packages pinned with hashes; torch is chosen at install and in every record")


def _libraries(source: Source) -> Finding:
    if not source.cells:
        return _no_cells()
    found: dict[str, set[str]] = {}
    for stored in source.cells.values():
        for name, version in stored.record.spec.libraries.items():
            found.setdefault(name, set()).add(version)
    several = sorted(name for name, versions in found.items() if len(versions) > 1)
    if several:
        return Finding("no", f"cells were computed with several versions of {', '.join(several)}")
    return Finding("yes", ", ".join(f"{name} {next(iter(versions))}" for name, versions in sorted(found.items())))


def _code(source: Source) -> Finding:
    if not source.cells:
        return _no_cells()
    recorded = {item for one in source.cells.values() for item in one.record.spec.sources.items()}
    here = source_identity(sorted({module for module, _ in recorded}))
    changed = sorted({module for module, blob in recorded if here.get(module) != blob})
    if changed:
        listed = ", ".join(changed[:3]) + (" and others" if len(changed) > 3 else "")
        return Finding("no", f"{len(changed)} modules are not those that computed the cells: {listed}")
    return Finding("yes", f"git blob ids of {len(here)} modules in the records equal the code that made this page")


def _boards(source: Source) -> Finding:
    if source.boards.get("inputs_sha256") != sha256_json(dict(source.lock)):
        return Finding("no", "the boards were made from another cells.lock.json; run `explainbench leaderboard`")
    if not source.boards["verified"]:
        return Finding("no", f"{len(source.boards['flagged'])} rows do not agree with cells.lock.json")
    return Finding("yes", f"{len(source.references)} cells cross-checked: run, record and trust root agree")


def _intervals(source: Source) -> Finding:
    wanted = source.params.statistics.bootstrap
    rows = 0
    for board in source.boards["boards"]:
        numbers = [row for row in board["rows"] if row["mean"] is not None and row["n"] > 1]
        rows += len(numbers)
        if numbers and board["resamples"] != wanted:
            return Finding("no", f"board {board['name']} has {board['resamples']} resamples, not {wanted}")
        if any(row["low"] is None for row in numbers):
            return Finding("no", f"board {board['name']} has a mean without an interval")
    if not rows:
        return Finding("open", "no board holds a mean over windows yet")
    return Finding("yes", f"{rows} means over windows, each with a percentile interval of B = {wanted:,}")


def _pipeline(source: Source) -> Finding:
    path = source.workspace.root / "dvc.lock"
    if not path.is_file() or not source.workspace.lock.is_file():
        return Finding("open", "no dvc.lock here: the stages were run without DVC")
    stages = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("stages", {})
    outs = {out["path"]: out.get("md5") for stage in stages.values() for out in stage.get("outs", ())}
    found = md5(source.workspace.lock.read_bytes(), usedforsecurity=False).hexdigest()
    if outs.get("cells.lock.json") is None:
        return Finding("open", "dvc.lock does not know the stage evaluate yet")
    if outs["cells.lock.json"] != found:
        return Finding("no", "dvc.lock holds another cells.lock.json than the one here")
    return Finding("yes", "the cells.lock.json that dvc.lock holds is the one here")


def _hardware(source: Source) -> Finding:
    if source.profile is None:
        return Finding("open", "no timings; run `explainbench profile`")
    hardware = source.profile.get("hardware", {})
    missing = [key for key in ("cpu", "threads", "torch") if not hardware.get(key)]
    if missing:
        return Finding("no", f"the profile does not name {', '.join(missing)}")
    threads = hardware["threads"]
    return Finding(
        "yes", f"{hardware['cpu']}, {threads} thread{'s' if threads != 1 else ''}, torch {hardware['torch']}"
    )


def _calibration(source: Source) -> Finding:
    coverage = [card.get("uncertainty") for card in source.cards.values()]
    if not any(coverage):
        return Finding("open", "no model card holds coverage by level yet; Uncertainty Awareness is pending")
    kinds = [str(item.get("quantiles", "")) for item in coverage if item]
    if not all(coverage) or not all(kinds):
        return Finding("no", f"{sum(map(bool, coverage))} of {len(coverage)} model cards disclose their quantiles")
    return Finding("yes", ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))))


def _ratings(source: Source) -> Finding:
    reasons = {
        one.record.skipped["human_interpretability"].reason
        for one in source.cells.values()
        if "human_interpretability" in one.record.skipped
    }
    if reasons or not source.cells:
        return Finding("open", "; ".join(sorted(reasons)) or "no finished cells")
    return Finding("yes", f"ratings in {len(source.cells)} records")


def _every_cell(source: Source, fails: Callable[[StoredCell], bool], otherwise: str) -> Finding:
    if not source.cells:
        return _no_cells()
    failing = [str(cell) for cell, stored in source.cells.items() if fails(stored)]
    if failing:
        return Finding("no", f"not so for {len(failing)} of {len(source.cells)} cells, the first is {failing[0]}")
    return Finding("yes", otherwise)


def _no_cells() -> Finding:
    return Finding("open", "the cell store is not here; run `dvc pull evaluate` or `explainbench evaluate`")


_AUDIT = "explainbench audit CELL"
_VALIDATE, _BOARDS = "explainbench data validate", "explainbench leaderboard"
_LOCK, _LEADERBOARD = ("cells.lock.json",), ("results/leaderboard.json",)
_ITEMS: Sequence[tuple[str, str, Callable[[Source], Finding], tuple[str, ...], str]] = (
    ("Data", "Checksums of every data file", _data_bytes, ("data.manifest.json",), _VALIDATE),
    ("Data", "Schema, grid, ranges and gaps validated", _data_valid, (), _VALIDATE),
    ("Data", "One fixed, disjoint window set per task", _windows, (), "explainbench data windows"),
    ("Protocol", "One protocol version and seed for all cells", _protocol, ("params.yaml",), _AUDIT),
    ("Protocol", "Normalisation bounds frozen", _bounds, (), "explainbench freeze"),
    ("Protocol", "All registered pairs scored", _grid, ("results/grid.json",), "explainbench list cells"),
    ("Artifacts", "Every artifact has its checksum", _artifacts, _LOCK, _AUDIT),
    ("Artifacts", "Every record is in the trust root", _trust_root, _LOCK, _AUDIT),
    ("Artifacts", "Model weights have their checksum", _weights, (), "explainbench audit CELL --replay"),
    ("Artifacts", "Origin of every model's weights disclosed", _weights_source, (), "explainbench list models"),
    ("Environment", "Dependencies pinned and hashed", _pinned, ("requirements.lock",), "make venv"),
    ("Environment", "One version of each numerical library", _libraries, (), _AUDIT),
    ("Environment", "Code of every cell identified, and still here", _code, (), _AUDIT),
    ("Environment", "Pipeline state recorded by DVC", _pipeline, (), "dvc status"),
    ("Environment", "Hardware of the timings disclosed", _hardware, ("results/profile.json",), "explainbench profile"),
    ("Results", "Board rows agree with the trust root", _boards, _LEADERBOARD, _BOARDS),
    ("Results", "Every mean over windows has a bootstrap interval", _intervals, _LEADERBOARD, _BOARDS),
    ("Explanations", "Deterministic or stochastic, per method", _determinism, (), "explainbench list methods"),
    ("Explanations", "Runs and seeds of stochastic methods recorded", _seeds, (), _AUDIT),
    ("Calibration", "Native quantiles or wrapper, per model", _calibration, (), "explainbench list models"),
    ("Human ratings", "Panel's answers archived with the score", _ratings, (), _AUDIT),
)
