"""Audit, the files: a cell's record, artifacts, parameters, code, model, windows and data, hashed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from explainbench.core.errors import BadInput, ExplainBenchError, NotApplicable
from explainbench.core.files import read_json
from explainbench.core.provenance import sha256_file, sha256_json
from explainbench.core.record import CellSpec
from explainbench.data._manifest import NAME as MANIFEST
from explainbench.data._manifest import data_files, dataset_sha256, read_manifest
from explainbench.stages.suite import load_suite
from explainbench.store import DETERMINISTIC, RECORD, StoredCell
from mlflow_plugins._chain import Link, same
from mlflow_plugins._checkout import dvc_md5
from mlflow_plugins._site import Site, changes, directory_md5

# Files of the energy suite's stages; the other suites identify their own data and models.
STAGED = ("energy",)
UNCOMPARABLE = (ExplainBenchError, NotApplicable, KeyError)  # what a stage that has not run, or another suite, raises
SHOWN = 5  # parameters that are named one by one


def record_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """The record against cells.lock.json, its cell id against its specification, its digest against its files' list."""
    record, lock = stored.record, site.workspace.lock
    found = site.lock.get(record.cell_id)
    holds = f"{RECORD} has the digest that {lock.name} holds for this cell"
    if not site.lock:
        yield Link("record in the lock", stored.digest, "", None, f"there is no {lock.name}; run evaluate")
    elif found is None:
        detail = f"{lock.name} does not list this cell: it left the grid or was never locked"
        yield Link("record in the lock", stored.digest, "missing", False, detail)
    else:
        cause = f"{RECORD} or {lock.name} was altered; `git log -p {lock.name}` says which"
        link = same("record in the lock", found, stored.digest, holds)
        yield link if link.ok else Link(link.name, found, stored.digest, False, cause)
    derived = sha256_json(record.spec.model_dump(mode="json"))
    yield same("cell id", record.cell_id, derived, "SHA-256 of the specification in the record", f"{RECORD} was edited")
    result = sha256_json(record.artifacts)
    detail = "SHA-256 of the list of files in the record"
    yield same("result digest", record.result_digest, result, detail, f"{RECORD} was edited")


def artifact_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """Each deterministic file of the cell has the digest that the record holds."""
    for name in DETERMINISTIC:
        path = stored.folder / name
        found = sha256_file(path) if path.is_file() else "missing"
        cause = f"{name} was altered, cut or removed; `explainbench evaluate` computes the cell again"
        yield same(name, stored.record.artifacts.get(name, "not in the record"), found, "", cause)


def params_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """What params.yaml says now about this cell, with the profile that fits the project, against the record."""
    recorded = _parameters(stored.record.spec)
    digest = sha256_json(recorded)
    profile = site.once("profile", lambda: _fitting_profile(site, stored))
    try:
        found = changes(recorded, _parameters(_spec_now(site, stored, profile)))
    except UNCOMPARABLE as problem:
        yield Link("parameters", digest, "", None, f"cannot be compared here: {problem}")
        return
    if not found:
        yield Link(
            "parameters", digest, digest, True, f"params.yaml says the same {profile and f'({profile})'}".strip()
        )
    cause = "params.yaml or defaults in the code changed since the cell was computed; evaluate again, or restore"
    for key, expected, value in found[:SHOWN]:
        yield Link(f"parameter {key}", expected, value, False, cause)
    if len(found) > SHOWN:
        yield Link("parameters", "", f"{len(found) - SHOWN} more", False, cause)


def _fitting_profile(site: Site, stored: StoredCell) -> str:
    """The profile of params.yaml under which a cell of the project differs least from its record."""
    recorded = _parameters(stored.record.spec)
    fewest = {}
    for profile in site.candidates:
        try:
            fewest[profile] = len(changes(recorded, _parameters(_spec_now(site, stored, profile))))
        except UNCOMPARABLE:
            continue
        if not fewest[profile]:
            break
    return min(fewest, key=lambda profile: fewest[profile], default="")


def _spec_now(site: Site, stored: StoredCell, profile: str) -> CellSpec:
    if profile not in site.candidates:
        raise BadInput("params.yaml cannot be read as the parameters of this version")
    suite, params = load_suite(stored.cell.suite), site.candidates[profile]
    return site.once(("spec", profile, stored.cell), lambda: suite.spec(site.workspace, params, stored.cell))


def _parameters(spec: CellSpec) -> dict[str, object]:
    """What of a specification comes from params.yaml and from the defaults of methods and metrics."""
    dumped = spec.model_dump(mode="json")
    return {key: dumped[key] for key in ("protocol", "seed", "runs", "parameters", "method_card")}


def source_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """The code now, and which commit holds the code of the record."""
    recorded = stored.record.spec.sources
    now = site.sources(recorded)
    changed = [module for module in recorded if now[module] != recorded[module]]
    digest = sha256_json(recorded)
    if site.bundle:
        cause = f"the bundle's copy of {', '.join(changed[:4])} is not the code of the record"
        yield same("source modules", digest, sha256_json(now), f"{len(recorded)} modules in the bundle", cause)
        return
    commit, searched = site.commit_with(recorded)
    where = f"committed in {commit[:12]}" if commit else searched
    if not changed:
        yield Link("source modules", digest, digest, True, f"{len(recorded)} modules unchanged; {where}")
        return
    detail = f"{', '.join(changed[:4])}{' and others' if len(changed) > 4 else ''} changed since; "
    if commit:
        yield Link("source modules", digest, digest, True, f"{detail}the record's code is {where}")
    else:
        cause = f"{detail}{where}: evaluate again, or find the code"
        yield Link("source modules", digest, sha256_json(now), False, cause)


def model_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """The model's card, the weights that it names, and the dataset that it was fitted on."""
    spec = stored.record.spec
    folder = site.workspace.models / spec.cell.task / spec.cell.model
    card_path, where = folder / "card.json", f"{spec.cell.task}/{spec.cell.model}"
    restore = "fitted again, or altered; `dvc checkout` restores what dvc.lock names"
    if not site.bundle and not site.workspace.models.is_dir():
        yield Link("model card", spec.model_card_sha256, "", None, "there is no models/ here; run `dvc pull` or fit")
        return
    found = site.once(("card", where), lambda: sha256_file(card_path) if card_path.is_file() else "missing")
    yield same("model card", spec.model_card_sha256, found, f"{where}/card.json", restore)
    if found == "missing":
        yield Link("weights", spec.weights_sha256, "", None, "there is no model card that names the file")
        return
    card = read_json(card_path)
    if card.get("weights", {}).get("file", "") is None:
        detail = f"official weights of {card.get('options', {}).get('checkpoint')} lie outside the project"
        yield Link("weights", spec.weights_sha256, "", None, detail)
        return
    weights = folder / str(card.get("weights", {}).get("file", "model.safetensors"))
    if weights.parent != folder or not weights.is_file():
        detail = f"{weights.name} is not there; run `dvc pull` or fit"
        yield Link("weights", spec.weights_sha256, "missing", False, detail)
    else:
        digest = site.once(("weights", where), lambda: sha256_file(weights))
        yield same("weights", spec.weights_sha256, digest, weights.name, restore)
    trained_on = card.get("dataset_sha256")
    if trained_on is None:
        yield Link("training record", spec.dataset_sha256, "", None, "the card names no dataset")
    else:
        training = card.get("training", {})
        detail = f"{training.get('windows', '?')} training windows, {training.get('epochs', '?')} epochs, same dataset"
        cause = "the model was fitted on another dataset, or its card was altered"
        yield same("training record", spec.dataset_sha256, str(trained_on), detail, cause)


def window_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """The benchmark windows of the task."""
    from explainbench.stages.data import load_task

    spec = stored.record.spec
    if not (site.workspace.windows / f"{spec.cell.task}.npz").is_file():
        yield Link("windows", spec.windows_sha256, "", None, "not cut here; run `explainbench data windows`")
        return
    found = site.once(("windows", spec.cell.task), lambda: load_task(site.workspace, spec.cell.task).windows.digest())
    cause = "data, task or sampling changed since; run `explainbench data windows` and evaluate again"
    yield same("windows", spec.windows_sha256, found, "window set", cause)


def data_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """The dataset's part of the manifest, and every data file against it."""
    spec = stored.record.spec
    root = site.workspace.root
    if not site.bundle and not (root / MANIFEST).is_file() and not site.workspace.data.is_dir():
        yield Link("dataset manifest", spec.dataset_sha256, "", None, f"there is neither {MANIFEST} nor data/ here")
        return
    found = site.once(("dataset", spec.dataset), lambda: dataset_sha256(root, spec.dataset))
    cause = f"{MANIFEST} was written anew or altered; `git diff {MANIFEST}` says which"
    yield same("dataset manifest", spec.dataset_sha256, found, f"part of {MANIFEST} about {spec.dataset}", cause)
    yield from site.once(("data files", spec.dataset), lambda: list(_data_files(site, spec.dataset)))


def _data_files(site: Site, dataset: str) -> Iterator[Link]:
    prefix = f"data/{dataset}/"
    files = {name: path for name, path in data_files(site.workspace.root).items() if name.startswith(prefix)}
    listed = {name: entry for name, entry in read_manifest(site.workspace.root).items() if name.startswith(prefix)}
    wrong = False
    for name, entry in sorted(listed.items()):
        found = sha256_file(files[name]) if name in files else "missing"
        if found != entry["sha256"]:
            wrong = True
            cause = "the file was altered or removed; restore it with `dvc checkout --force data.dvc`"
            yield Link(f"data file {name}", entry["sha256"], found, False, cause)
    for name in sorted(files.keys() - listed.keys()):
        wrong = True
        yield Link(
            f"data file {name}", f"not in {MANIFEST}", sha256_file(files[name]), False, "a file nobody vouches for"
        )
    if not wrong:
        yield Link("data files", "", "", True, f"{len(listed)} files have the digests of {MANIFEST}")


def input_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """Data and model of a cell whose suite identifies them itself: identified again, and compared with the record."""
    spec = stored.record.spec
    try:
        now = _spec_now(site, stored, site.once("profile", lambda: _fitting_profile(site, stored)))
    except UNCOMPARABLE as reason:
        yield Link("data and model", spec.dataset_sha256, "", None, f"cannot be identified here: {reason}")
        return
    for key, title in (
        ("dataset_sha256", "dataset"),
        ("windows_sha256", "rows"),
        ("model_card_sha256", "model card"),
        ("weights_sha256", "weights"),
    ):
        detail = f"{spec.dataset}, {spec.weights_source} weights"
        yield same(title, getattr(spec, key), getattr(now, key), detail, "changed or altered since; evaluate again")
    then, there = (dict(side.parameters.get("task") or {}) for side in (spec, now))
    if "energy_cell" in then:  # whose stored explanations the cell judges
        cause = "it was evaluated again since, or altered; evaluate this suite again"
        found = str(there.get("result_digest", "missing"))
        yield same("energy cell", then["result_digest"], found, str(then["energy_cell"]), cause)


def dvc_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """data.dvc against the bytes under data/."""
    expected = dvc_md5(site.workspace.root / "data.dvc")
    if expected is None:
        yield Link("DVC", "", "", None, "no data.dvc in this project")
        return
    found = site.once("data md5", lambda: directory_md5(site.workspace.data))
    cause = "data/ or data.dvc was altered; `dvc checkout --force data.dvc` restores the data"
    yield same("DVC", expected, found, "data.dvc, hash of the folder recomputed", cause)


def git_links(site: Site, stored: StoredCell) -> Iterator[Link]:
    """The digest in the newest commit's cells.lock.json: what vouches from outside the working tree."""
    if site.bundle:
        digest = hashlib.sha256(site.workspace.lock.read_bytes()).hexdigest() if site.workspace.lock.is_file() else ""
        detail = "a bundle carries no repository: compare this digest with the cells.lock.json of the publisher's git"
        yield Link("git", digest, "", None, detail)
        return
    if site.checkout.commit is None:
        yield Link("git", "", "", None, "the project is in no git repository, or nothing is committed")
        return
    state = f"at {site.checkout.commit[:12]}, {'with uncommitted changes' if site.checkout.dirty else 'clean'}"
    lock = site.workspace.lock
    committed = site.committed(lock)
    if committed is None:
        yield Link("git", stored.digest, "", None, f"{state}; {lock.name} is not committed, so nothing outside vouches")
        return
    try:
        found = json.loads(committed)["cells"].get(stored.record.cell_id, "missing")
    except (ValueError, KeyError, TypeError, AttributeError):
        found = "unreadable"
    if found == "missing":
        yield Link("git", stored.digest, "", None, f"{state}; the committed {lock.name} does not list this cell yet")
    else:
        cause = "altered since the commit, or computed on another processor type: `explainbench verify --against`"
        yield same("git", found, stored.digest, f"{state}; digest in the committed {lock.name}", cause)


CHECKS = {
    "record": (record_links,),
    "files": (artifact_links,),
    "params": (params_links,),
    "code": (source_links,),
}
STAGED_CHECKS = {"model": (model_links,), "windows": (window_links,), "data": (data_links,), "dvc": (dvc_links,)}
OTHER_CHECKS = {"data": (input_links,)}
LAST_CHECKS = {"git": (git_links,)}
