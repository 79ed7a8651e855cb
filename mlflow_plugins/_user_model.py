"""A user's own model and data as the benchmark's nouns: a forecaster, windows, a masking operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, ValidationError

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.dataset import TaskData
from explainbench.core.errors import BadInput, Unavailable
from explainbench.core.forecaster import ExplainedModel, Forecast
from explainbench.core.masking import QUARTERS, Climatology, Groups, Masker, Operator
from explainbench.core.params import Block
from explainbench.core.windows import Channels, Windows
from explainbench.stages.cell import Bench

if TYPE_CHECKING:
    import pandas as pd
    import torch

LEVELS = ("low", "middle", "high")  # terciles of the output: the groups of windows that rank alignment compares
QUARTER_HOUR = np.timedelta64(15, "m")


class ForecastBlock(Block):
    """How windows are cut from a series. context, horizon, segment: in steps; known: columns that are never explained.

    target: the forecast column; time: the column of time stamps, else the index.
    """

    target: str
    context: Annotated[int, Field(gt=0)]
    horizon: Annotated[int, Field(gt=0)]
    segment: Annotated[int, Field(gt=0)]
    time: str | None = None
    known: tuple[str, ...] = ()


class Config(Block):
    """`evaluator_config` of the evaluator `explainbench`; an unknown key is an error.

    forecast: for a forecaster; without it the data are a table, one row an observation. methods: default all that can
    explain the model; options: {method or metric: its options}, as in params.yaml; rows: windows or rows explained;
    runs: repetitions of a method that draws; label: the class whose probability is explained.
    """

    forecast: ForecastBlock | None = None
    methods: tuple[str, ...] | None = None
    metrics: tuple[str, ...] = ("faithfulness", "stability", "fidelity", "axe", "eamex")
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rows: Annotated[int, Field(ge=2)] = 60
    runs: Annotated[int, Field(ge=1)] = 5
    seed: Annotated[int, Field(ge=0)] = 42
    masker: Operator | None = None
    label: int | str | None = None


def read_config(given: Mapping[str, Any] | None) -> Config:
    """Check `evaluator_config`. Raises BadInput naming the key."""
    try:
        return Config.model_validate(dict(given or {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"evaluator_config: {where}: {first['msg']}.") from error


@dataclass(frozen=True, slots=True)
class UserForecaster:
    """A model that stays where its user keeps it. ask: contexts (n, t, c) -> (n, h)."""

    ask: Callable[[Floats], Floats]

    def predict(self, context: Floats) -> Forecast:
        """Ask the model. Raises BadInput for an output that is not one row of numbers per window."""
        found = np.asarray(self.ask(context), dtype=np.float64)
        if found.ndim == 1:
            found = found[:, None]
        if found.ndim != 2 or len(found) != len(context):
            raise BadInput(
                f"the model returned shape {found.shape} for {len(context)} windows or rows; it must return one row of "
                "numbers, or one number, for each."
            )
        return Forecast(found)

    def save(self, folder: Path) -> None:
        """Refused: MLflow keeps the model."""
        raise Unavailable("a model under evaluation is kept by MLflow, not by the benchmark.")

    def described(self, **more: Any) -> UserForecaster:
        """The same forecaster: there is no card to extend."""
        return self


@dataclass(frozen=True, slots=True)
class UserTorchForecaster(UserForecaster):
    """The same with gradients. module: float32 (n, t, c) -> (n, h), in eval mode."""

    module: torch.nn.Module


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What is explained. table: all rows in z-units and their labels, for AXE of a classifier, and which are explained.

    unit: what one player is, in words.
    """

    bench: Bench
    kind: Literal["forecaster", "regressor", "classifier"]
    table: tuple[Floats, Any, Any] | None = None


def forecaster_case(model: Any, frame: pd.DataFrame, block: ForecastBlock, config: Config) -> Case:
    """Windows cut from a regular series, disjoint, from the end backwards. Raises BadInput."""
    stamps, values, names = _series(frame, block)
    step = stamps[1] - stamps[0]
    stride = block.context + block.horizon
    first = np.arange(len(stamps) - stride, -1, -stride)[: config.rows][::-1]
    if len(first) < 2:
        raise BadInput(f"{len(stamps)} steps hold fewer than two disjoint windows of {stride} steps.")
    target = names.index(block.target)
    context = np.stack([values[at : at + block.context] for at in first])
    future = np.stack([values[at + block.context : at + stride, target] for at in first])
    channels = _channels(names, values, block.known)
    regime = _terciles(future.mean(axis=1))
    origin = stamps[first + block.context]
    windows = Windows(context, future, regime, origin, channels)
    climatology = _climatology(stamps, values) if step == QUARTER_HOUR else None
    operator = config.masker or ("climatology" if climatology is not None else "interpolate")
    if operator in ("climatology", "resample") and climatology is None:
        raise BadInput(
            f"masker {operator!r} needs a quarter-hourly series with a whole working day and a whole weekend day; "
            "use interpolate or mean."
        )
    groups = Groups.of(channels, block.context, block.segment, channels.observed)
    minutes = int(step / np.timedelta64(1, "m"))
    masker = Masker(groups, operator, climatology, minutes, target)
    data = TaskData(windows, cast(Climatology, climatology), float(values[:, target].std()), "", "", {})
    return Case(Bench(data, ExplainedModel(_forecaster(model)), masker), "forecaster")


def table_case(
    model: Any, frame: pd.DataFrame, targets: Any, config: Config, kind: Literal["regressor", "classifier"]
) -> Case:
    """Rows of a table as windows of one step; every column is a player. Raises BadInput."""
    import pandas as pd

    names = tuple(map(str, frame.columns))
    values = _numbers(frame, names)
    labels = None
    if kind == "classifier":
        ask, labels = _probabilities(model, frame, config.label)
    else:
        ask = lambda table: _predicted(model, pd.DataFrame(table, columns=frame.columns))  # noqa: E731
    raw = _torch_module(model)
    if raw is not None and kind == "regressor":
        module = _rows_module(raw)
        forecaster: UserForecaster = UserTorchForecaster(lambda given: _ask_torch(module, given), module)
    else:
        forecaster = UserForecaster(lambda given: ask(given[:, 0, :]))
    explained = np.unique(np.linspace(0, len(values) - 1, min(config.rows, len(values))).astype(int))
    if len(explained) < 2:
        raise BadInput("the table has fewer than two rows; explanations are compared over rows.")
    known = np.zeros((len(values), 1)) if targets is None else np.asarray(targets).reshape(len(values), -1)[:, :1]
    outputs = forecaster.predict(values[explained, None, :]).mean.mean(axis=1)
    numeric = known.dtype.kind in "fiub"
    target = known[explained].astype(np.float64) if numeric else np.zeros((len(explained), 1))
    regime = _terciles(outputs) if labels is None else labels[explained].astype(str)
    channels = _channels(names, values, ())
    windows = Windows(values[explained, None, :], target, regime, explained, channels)
    groups = Groups.of(channels, 1, 1, channels.observed)
    masker = Masker(groups, config.masker or "mean")
    if masker.operator not in ("mean", "raw_zero"):
        raise BadInput(f"masker {masker.operator!r} needs time; a table is masked by mean or raw_zero.")
    # a class probability lives on [0, 1]: an error is judged against the range, not against a standard deviation
    spread = 1.0 if kind == "classifier" else float(known.astype(np.float64).std() if numeric else outputs.std())
    data = TaskData(windows, cast(Climatology, None), spread or 1.0, "", "", {})
    table = None if labels is None else (values / channels.std, labels, explained)
    return Case(Bench(data, ExplainedModel(forecaster), masker), kind, table)


def _series(frame: pd.DataFrame, block: ForecastBlock) -> tuple[Stamps, Floats, tuple[str, ...]]:
    import pandas as pd

    if block.time is not None:
        if block.time not in frame:
            raise BadInput(f"evaluator_config: forecast.time: the data have no column {block.time!r}.")
        frame = frame.set_index(block.time)
    try:
        index = pd.DatetimeIndex(frame.index) if frame.index.dtype.kind in "MO" else None
    except (TypeError, ValueError):
        index = None
    if index is None or index.hasnans:
        raise BadInput("the series has no time stamps: give it a DatetimeIndex, or name their column in forecast.time.")
    if index.tz is not None:
        index = index.tz_convert("UTC").tz_localize(None)
    stamps = index.to_numpy().astype("datetime64[m]")
    names = tuple(map(str, frame.columns))
    for name in (block.target, *block.known):
        if name not in names:
            raise BadInput(
                f"evaluator_config: forecast: the data have no column {name!r}; they have {', '.join(names)}."
            )
    steps = np.diff(stamps)
    if len(steps) == 0 or (steps != steps[0]).any() or steps[0] <= np.timedelta64(0, "m"):
        where = f" (the first gap follows {stamps[int((steps != steps[0]).argmax())]})" if len(steps) else ""
        raise BadInput(f"the series must rise in equal steps of whole minutes{where}.")
    if block.segment > block.context:
        raise BadInput("evaluator_config: forecast.segment is longer than the context.")
    return stamps, _numbers(frame, names), names


def _numbers(frame: pd.DataFrame, names: tuple[str, ...]) -> Floats:
    for name, kind in zip(names, frame.dtypes, strict=True):
        if kind.kind not in "fiub":
            raise BadInput(f"column {name!r} holds {kind}, not numbers; encode it inside the model, or leave it out.")
    values = frame.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise BadInput(f"column {names[column]!r} holds NaN or infinity, the first in row {row}.")
    return values


def _channels(names: tuple[str, ...], values: Floats, known: tuple[str, ...]) -> Channels:
    """Statistics of the data given: they define z-units, and the means that masked columns take."""
    std = values.std(axis=0)
    return Channels(
        names=names,
        units=("",) * len(names),
        known=tuple(name in known for name in names),
        mean=values.mean(axis=0),
        std=np.where(std > 0, std, 1.0),  # a constant column has no scale of its own
        low=values.min(axis=0),
        high=values.max(axis=0),
    )


def _terciles(output: Floats) -> Any:
    return np.array(LEVELS)[np.searchsorted(np.quantile(output, [1 / 3, 2 / 3]), output)]


def _climatology(stamps: Stamps, values: Floats) -> Climatology | None:
    minutes = (stamps - stamps.astype("datetime64[D]")).astype("timedelta64[m]").astype(int)
    if not (minutes == 0).any() or len(stamps) - int((minutes == 0).argmax()) < QUARTERS:
        return None
    found = Climatology.of(stamps, values)
    return found if found.weekend.any() and not found.weekend.all() else None


def _torch_module(model: Any) -> torch.nn.Module | None:
    raw = _raw(model)
    if raw is None or type(raw).__module__.split(".")[0] in ("builtins", "sklearn", "numpy"):
        return None
    import torch

    if not isinstance(raw, torch.nn.Module):
        return None
    with suppress(NotImplementedError):  # a traced graph is in one mode for good
        raw.eval()
    return raw


def _raw(model: Any) -> Any:
    try:
        return model.get_raw_model()
    except (AttributeError, NotImplementedError):  # a function, or a flavour that hides its model
        return None


def _forecaster(model: Any) -> UserForecaster:
    raw = _torch_module(model)
    if raw is not None:
        return UserTorchForecaster(lambda given: _ask_torch(raw, given), raw)
    return UserForecaster(lambda given: _predicted(model, given))


def _ask_torch(module: torch.nn.Module, context: Floats) -> Floats:
    import torch

    with torch.no_grad():
        return module(torch.from_numpy(context.astype(np.float32))).double().numpy()


def _rows_module(module: torch.nn.Module) -> torch.nn.Module:
    """A module of rows (n, d) as one of windows of one step (n, 1, d)."""
    import torch

    class Rows(torch.nn.Module):
        def forward(self, context: torch.Tensor) -> torch.Tensor:
            output = module(context[:, 0, :])
            return output[:, None] if output.ndim == 1 else output

    return Rows().eval()


def _predicted(model: Any, given: Any) -> Any:
    """Ask the model. Raises BadInput where MLflow's check of its signature refuses what an explanation has to ask."""
    from mlflow.exceptions import MlflowException

    metadata = getattr(model, "metadata", None)
    schema = None if metadata is None else metadata.get_input_schema()
    if isinstance(given, np.ndarray) and schema is not None and schema.is_tensor_spec():
        given = given.astype(schema.inputs[0].type)  # a model logged with float32 takes nothing else
    try:
        found = model.predict(given)
    except MlflowException as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"the model refuses inputs that an explanation has to ask about ({reason[:200]}); log it with a signature "
            "of floating-point columns."
        ) from error
    return found.to_numpy() if hasattr(found, "to_numpy") else found


def _probabilities(model: Any, frame: pd.DataFrame, label: int | str | None) -> tuple[Callable[[Floats], Floats], Any]:
    """Rows (m, d) -> the probability of one class (m,), and the predicted label of every row of the data."""
    import pandas as pd

    raw = _raw(model)
    several = getattr(raw, "predict_proba", None) or (lambda given: _predicted(model, given))
    first = np.asarray(several(frame), dtype=object)
    try:
        first = first.astype(np.float64)
    except (TypeError, ValueError):
        first = np.empty((0, 0))
    if first.ndim == 1 and len(first) and ((first >= 0) & (first <= 1)).all() and len(np.unique(first)) > 2:
        return lambda table: _predicted(model, pd.DataFrame(table, columns=frame.columns)), (first >= 0.5).astype(int)
    if first.ndim != 2 or first.shape[1] < 2 or first.min(initial=0.0) < 0 or first.max(initial=0.0) > 1:
        raise BadInput(
            "a classifier must give probabilities, by predict_proba or as the columns it returns: a label alone hardly "
            "ever changes when an input does, so there is nothing to measure."
        )
    classes = [str(one) for one in getattr(raw, "classes_", range(first.shape[1]))]
    wanted = classes[-1] if label is None and len(classes) == 2 else str(label)
    if wanted not in classes:
        raise BadInput(f"evaluator_config: label: name the class to explain; the classes are {', '.join(classes)}.")
    column = classes.index(wanted)
    return (
        lambda table: np.asarray(several(pd.DataFrame(table, columns=frame.columns)))[:, column],
        np.array(classes)[first.argmax(axis=1)],
    )
