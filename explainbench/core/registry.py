"""The four registries: an entry is one file, found by listing a folder or an entry-point group, imported on use."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from explainbench.core.dataset import DatasetCard, DatasetEntry
from explainbench.core.errors import BadInput
from explainbench.core.evidence import Metric, MetricCard
from explainbench.core.explanation import Explainer, MethodCard
from explainbench.core.forecaster import ModelCard, ModelEntry

Card = TypeVar("Card")
Entry = TypeVar("Entry")
EntryClass = TypeVar("EntryClass", bound=type)


@dataclass(frozen=True)
class Registry(Generic[Card, Entry]):
    """Entries of one kind. The name of an entry is the name of its file."""

    kind: str  # singular, as said to a user
    package: str
    _found: dict[str, tuple[Card, type[Any]]] = field(default_factory=dict)

    def register(self, card: Card) -> Callable[[EntryClass], EntryClass]:
        """Decorate the entry's dataclass with its card."""

        def add(entry: EntryClass) -> EntryClass:
            name = entry.__module__.rsplit(".", 1)[-1]
            known = self._found.get(name)
            if known is not None and known[1].__module__ != entry.__module__:
                raise RuntimeError(
                    f"two {self.kind} entries are called {name!r}: {known[1].__module__}, {entry.__module__}"
                )
            self._found[name] = (card, entry)
            return entry

        return add

    def names(self) -> tuple[str, ...]:
        """All entries, in this package and in installed ones, without importing any."""
        return tuple(sorted(self._modules()))

    def card(self, name: str) -> Card:
        """What entry `name` declares. Raises BadInput for an unknown name."""
        return self._load(name)[0]

    def entry(self, name: str) -> type[Any]:
        """The entry's dataclass. Raises BadInput for an unknown name."""
        return self._load(name)[1]

    def module(self, name: str) -> str:
        """The module that holds entry `name`."""
        return self._load(name)[1].__module__

    def build(self, name: str, options: Mapping[str, Any] | None = None) -> Entry:
        """The entry with its block of params.yaml. Raises BadInput naming an unknown key or an impossible value."""
        entry = self.entry(name)
        options = dict(options or {})
        allowed = {item.name for item in fields(entry) if item.init}
        for key in options:
            if key not in allowed:
                known = ", ".join(sorted(allowed)) or "none"
                raise BadInput(f"params: {self.kind}s.{name}.{key} is not an option; its options are {known}.")
        try:
            return cast(Entry, TypeAdapter(entry).validate_python(options))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadInput(f"params: {self.kind}s.{name}.{where} = {first['input']!r}: {first['msg']}.") from error

    def _modules(self) -> dict[str, str]:
        spec = find_spec(self.package)
        assert spec is not None
        found = {
            item.name: f"{self.package}.{item.name}"
            for item in pkgutil.iter_modules(spec.submodule_search_locations)
            if not item.name.startswith("_")
        }
        for point in entry_points(group=self.package):
            if point.name in found and found[point.name] != point.value:
                raise RuntimeError(f"{point.value} registers {self.kind} {point.name!r}, a name already in use")
            found[point.name] = point.value
        return found | {name: entry.__module__ for name, (_, entry) in self._found.items() if name not in found}

    def _load(self, name: str) -> tuple[Card, type[Any]]:
        if name not in self._found:
            modules = self._modules()
            if name not in modules:
                raise BadInput(
                    f"{name!r} is not a registered {self.kind}; registered are {', '.join(sorted(modules))}."
                )
            importlib.import_module(modules[name])
        if name not in self._found:  # imported, and still not there
            raise RuntimeError(f"{self._modules()[name]} is listed as a {self.kind} but registers none")
        return self._found[name]


METHODS: Registry[MethodCard, Explainer] = Registry("method", "explainbench.methods")
MODELS: Registry[ModelCard, ModelEntry] = Registry("model", "explainbench.models")
DATASETS: Registry[DatasetCard, DatasetEntry] = Registry("dataset", "explainbench.data")
METRICS: Registry[MetricCard, Metric] = Registry("metric", "explainbench.metrics")


def first_line(entry: type) -> str:
    """The first line of an entry's docstring: what it is, in the paper's words."""
    return (inspect.getdoc(entry) or "").split("\n", 1)[0]
