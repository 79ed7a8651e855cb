"""One picture by which a grid engineer can judge a quarter-hourly grid series."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.dataset import Series
from explainbench.core.masking import is_weekend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAY, WEEK = 96, 672  # steps
NEEDED = ("load_mw", "energy_price_usd_mwh", "temperature_c", "solar_mw", "wind_mw")
COLOURS = {"load_mw": "#1b1b1b", "residual": "#8c510a", "solar_mw": "#e6a100", "wind_mw": "#2c7fb8"}


def plausibility_png(year: Series, benchmark: Series, title: str) -> bytes | None:
    """PNG of a winter and a summer week, price-duration curves, the load by day and hour, and load over temperature.

    `year` is a training realisation, from which weeks and heat map are taken; the curves show both series. None where
    the series lack a channel of a whole grid or are shorter than four weeks.
    """
    if not set(NEEDED) <= set(year.names) or min(len(year.stamps), len(benchmark.stamps)) < 4 * WEEK:
        return None
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(14, 12), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(4, 6, height_ratios=[1.15, 0.8, 1.05, 1.05])
        cold, warm = _extreme_weeks(year)
        for start, name, columns in ((cold, "coldest", slice(0, 3)), (warm, "hottest", slice(3, 6))):
            power = figure.add_subplot(grid[0, columns])
            _week(power, year, start, f"{name.capitalize()} week, from {year.stamps[start].astype('datetime64[D]')}")
            _price(figure.add_subplot(grid[1, columns], sharex=power), year, start)
        _duration(figure.add_subplot(grid[2, 0:2]), year, benchmark)
        _profile(figure.add_subplot(grid[2, 2:4]), year)
        _response(figure.add_subplot(grid[2, 4:6]), year)
        _heat_map(figure.add_subplot(grid[3, 0:3]), year, "load_mw", "Load, MW", "viridis")
        _heat_map(figure.add_subplot(grid[3, 3:6]), year, "energy_price_usd_mwh", "Price, USD/MWh", "magma")
        figure.suptitle(title, fontsize=11)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=90, metadata={"Software": None})
    return buffer.getvalue()


def _column(series: Series, name: str) -> Floats:
    return series.values[:, series.names.index(name)]


def _residual(series: Series) -> Floats:
    return _column(series, "load_mw") - _column(series, "solar_mw") - _column(series, "wind_mw")


def _extreme_weeks(series: Series) -> tuple[int, int]:
    """Rows at which the coldest and the hottest week from Monday to Sunday begin."""
    days = series.stamps.astype("datetime64[D]")
    midnight = series.stamps == days.astype(series.stamps.dtype)
    monday = (days.astype(np.int64) + 3) % 7 == 0
    starts = np.flatnonzero(midnight & monday)
    starts = starts[starts + WEEK <= len(days)]
    means = np.array([_column(series, "temperature_c")[start : start + WEEK].mean() for start in starts])
    return int(starts[means.argmin()]), int(starts[means.argmax()])


def _stamps(series: Series, start: int) -> Stamps:
    return series.stamps[start : start + WEEK]


def _week(axes: Axes, series: Series, start: int, title: str) -> None:
    rows = slice(start, start + WEEK)
    stamps: Any = _stamps(series, start)
    axes.fill_between(stamps, _column(series, "solar_mw")[rows], color=COLOURS["solar_mw"], alpha=0.6, label="solar")
    axes.plot(stamps, _column(series, "wind_mw")[rows], color=COLOURS["wind_mw"], lw=1, label="wind")
    axes.plot(stamps, _residual(series)[rows], color=COLOURS["residual"], lw=1, label="residual load")
    axes.plot(stamps, _column(series, "load_mw")[rows], color=COLOURS["load_mw"], lw=1.4, label="load")
    axes.set(title=title, ylabel="MW", ylim=(0, 1.18 * _column(series, "load_mw").max()))
    temperature = axes.twinx()
    temperature.plot(
        stamps, _column(series, "temperature_c")[rows], color="#c51b7d", lw=0.9, ls=":", label="temperature"
    )
    temperature.set_ylabel("°C", color="#c51b7d")
    temperature.set_ylim(-45, 45)
    axes.legend(loc="upper left", ncols=4, frameon=False, fontsize=8)


def _price(axes: Axes, series: Series, start: int) -> None:
    from matplotlib.dates import DateFormatter, DayLocator

    axes.plot(
        _stamps(series, start), _column(series, "energy_price_usd_mwh")[start : start + WEEK], color="#762a83", lw=1
    )
    axes.axhline(0, color="0.6", lw=0.6)
    axes.set(ylabel="USD/MWh")
    axes.xaxis.set_major_locator(DayLocator())
    axes.xaxis.set_major_formatter(DateFormatter("%a %d"))


def _duration(axes: Axes, year: Series, benchmark: Series) -> None:
    for series, name, style in ((year, "training year", "-"), (benchmark, "benchmark", "--")):
        price = np.sort(_column(series, "energy_price_usd_mwh"))[::-1]
        share = 100 * (np.arange(len(price)) + 0.5) / len(price)
        axes.plot(share, price, style, color="#762a83", label=f"{name} ({100 * (price < 0).mean():.1f} % below 0)")
    axes.axhline(0, color="0.6", lw=0.6)
    axes.set(title="Price-duration curve", xlabel="share of the quarter-hours, %", ylabel="USD/MWh")
    axes.legend(frameon=False)


def _profile(axes: Axes, series: Series) -> None:
    """Mean day of working days and weekends, in the three coldest and the three warmest months of the year."""
    load = _column(series, "load_mw")
    minute = (series.stamps - series.stamps.astype("datetime64[D]")).astype("timedelta64[m]").astype(int)
    month = series.stamps.astype("datetime64[M]").astype(int) % 12 + 1
    for months, season, colour in (((12, 1, 2), "winter", "#2c7fb8"), ((6, 7, 8), "summer", "#d95f02")):
        for weekend, kind, style in ((False, "working day", "-"), (True, "weekend", "--")):
            mine = np.isin(month, months) & (is_weekend(series.stamps) == weekend)
            count = np.bincount(minute[mine] // 15, minlength=DAY)
            mean = np.bincount(minute[mine] // 15, load[mine], minlength=DAY) / np.maximum(count, 1)
            if count.all():
                axes.plot(np.arange(DAY) / 4, mean, style, color=colour, label=f"{season}, {kind}")
    axes.set(title="Mean day", xlabel="hour, UTC", ylabel="MW", xlim=(0, 24), xticks=range(0, 25, 4))
    axes.legend(frameon=False, fontsize=8)


def _response(axes: Axes, series: Series) -> None:
    """Daily means of load over temperature: heating and cooling."""
    days = len(series.stamps) // DAY
    temperature, load = (
        _column(series, name)[: days * DAY].reshape(days, DAY) for name in ("temperature_c", "load_mw")
    )
    weekend = is_weekend(series.stamps[: days * DAY : DAY])
    for mine, label, colour in ((~weekend, "working day", "#1b1b1b"), (weekend, "weekend", "#d95f02")):
        axes.plot(temperature.mean(axis=1)[mine], load.mean(axis=1)[mine], ".", ms=4, color=colour, label=label)
    axes.set(title="Daily load over temperature", xlabel="°C", ylabel="MW")
    axes.legend(frameon=False)


def _heat_map(axes: Axes, series: Series, name: str, title: str, colours: str) -> None:
    days = len(series.stamps) // DAY
    values = _column(series, name)[: days * DAY].reshape(days, DAY).T
    low, high = np.quantile(values, [0.01, 0.99])
    dates: Any = series.stamps[: days * DAY : DAY]
    image = axes.pcolormesh(
        dates, np.arange(DAY) / 4, values, cmap=colours, vmin=low, vmax=high, shading="nearest", rasterized=True
    )
    axes.set(title=f"{title} (colours: 1st to 99th percentile)", ylabel="hour, UTC", yticks=range(0, 25, 6))
    axes.figure.colorbar(image, ax=axes, pad=0.01)
