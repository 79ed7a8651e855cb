"""The structural equations of the stand-in grid, and the sensitivity of a target block to every observed input.

Every channel is a calendar term plus a stationary anomaly, all at quarter-hour steps k, in UTC (the region keeps UTC):

    temperature  T = season + day cycle + a                      a: AR(1)
    solar        S = capacity * clear sky * k(z)                 z: AR(1), k a logistic clearness index
    wind         W = capacity * P(m + w)                         w: AR(1), P a logistic power curve
    felt         F = s T + (1 - s) M,  M = EMA of T              thermal inertia of buildings
    load         L = calendar + heating(F) + cooling(F) + u      u: (1 - phi B)(1 - Phi B^96) u = noise
    residual     N = L - S - W
    price        P = min(cap, merit order(N + o) + v)            o: outages, AR(1), unobserved;  v: as u

`Slopes` holds the derivatives of these equations along a realisation; with them and the AR coefficients the derivative
of any target block with respect to any observed input of the context is closed-form (`sensitivity`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import expit

from explainbench.core.arrays import Bools, Floats, Stamps

DAY = 96  # quarter-hours
CHANNELS = ("load_mw", "energy_price_usd_mwh", "temperature_c", "solar_mw", "wind_mw")
UNITS = ("MW", "USD/MWh", "degC", "MW", "MW")
LOAD, PRICE, TEMPERATURE, SOLAR, WIND = range(5)


@dataclass(frozen=True, slots=True)
class Seasonal:
    """Memory of a noise with a daily season: (1 - short B)(1 - daily B^96) x = e, stationary deviation `sd`."""

    short: float
    daily: float
    sd: float

    def response(self, horizon: int, steps: int) -> Floats:
        """Coefficient of x[k-i] in x[k+j] when no further noise arrives: (horizon j = 1.., steps i = 0..)."""
        past = np.zeros((horizon + 1, steps))
        for j in range(1, horizon + 1):
            for lag, weight in ((1, self.short), (DAY, self.daily), (DAY + 1, -self.short * self.daily)):
                if lag < j:
                    past[j] += weight * past[j - lag]
                elif lag - j < steps:
                    past[j, lag - j] += weight
        return past[1:]

    def simulate(self, rng: np.random.Generator, steps: int) -> Floats:
        """(steps,) of x, after a burn-in of 40 days."""
        burn = 40 * DAY
        polynomial = np.zeros(DAY + 2)
        polynomial[[0, 1, DAY, DAY + 1]] = 1.0, -self.short, -self.daily, self.short * self.daily
        overlap = self.daily * self.short**DAY  # the two factors are nearly, not quite, orthogonal
        variance = (1 + overlap) / ((1 - overlap) * (1 - self.short**2) * (1 - self.daily**2))
        noise = rng.standard_normal(steps + burn) * (self.sd / np.sqrt(variance))
        return _filtered([1.0], polynomial, noise)[burn:]


@dataclass(frozen=True, slots=True)
class Region:
    """All constants of the grid. Powers in MW, temperatures in deg C, prices in USD/MWh, memories in steps."""

    latitude: float = 46.0
    # weather
    temperature_mean: float = 11.5
    temperature_season: float = 11.5
    temperature_memory: float = 360.0
    temperature_sd: float = 3.6
    solar_capacity: float = 1500.0
    cloud_memory: float = 24.0
    cloud_sd: float = 1.5
    wind_capacity: float = 1400.0
    wind_memory: float = 200.0
    wind_sd: float = 1.25
    # load
    direct: float = 0.4  # s: share of the felt temperature that follows the air at once
    inertia: float = 1 / 72  # weight of the newest step in the EMA: a time constant of 18 hours
    heating: float = 44.0  # MW per degree below 15
    cooling: float = 74.0  # MW per degree above 19.5
    bend: float = 1.2  # degrees over which either response sets in
    load_noise: Seasonal = Seasonal(short=0.96, daily=0.5, sd=70.0)
    # price
    price_cap: float = 500.0
    outage_memory: float = 60.0
    outage_sd: float = 160.0
    price_noise: Seasonal = Seasonal(short=0.97, daily=0.8, sd=12.0)


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Derivatives of the structural equations along a realisation, each (s,).

    load_per_degree: dL/dF; price_per_mw: dP/dN below the cap; price_free: the price is below its cap;
    solar_per_sd, wind_per_sd: MW that one standard deviation of the cloud or wind anomaly is worth (solar: 0 at night).
    """

    load_per_degree: Floats
    price_per_mw: Floats
    price_free: Bools
    solar_per_sd: Floats
    wind_per_sd: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Realisation:
    """stamps (s,), observed values (s, 5) in the order of CHANNELS, and the slopes along them."""

    stamps: Stamps
    values: Floats
    slopes: Slopes


@dataclass(frozen=True, slots=True, eq=False)
class Anomalies:
    """The random part of a realisation, each (s,): a, z, w (unit variance), u, o, v and the EMA's start M[-1]."""

    temperature: Floats
    cloud: Floats
    wind: Floats
    load: Floats
    outage: Floats
    price: Floats
    start: float


def draw(region: Region, rng: Callable[[str], np.random.Generator], steps: int) -> Anomalies:
    """Independent stationary anomalies, one random stream per equation."""

    def ar1(name: str, memory: float) -> Floats:
        keep = np.exp(-1 / memory)
        noise = rng(name).standard_normal(steps + 40 * DAY) * np.sqrt(1 - keep**2)
        return _filtered([1.0], [1.0, -keep], noise)[-steps:]

    temperature = region.temperature_sd * ar1("temperature", region.temperature_memory)
    return Anomalies(
        temperature=temperature,
        cloud=ar1("cloud", region.cloud_memory),
        wind=ar1("wind", region.wind_memory),
        load=region.load_noise.simulate(rng("load"), steps),
        outage=region.outage_sd * ar1("outage", region.outage_memory),
        price=region.price_noise.simulate(rng("price"), steps),
        start=float(temperature[0]),
    )


def equations(region: Region, stamps: Stamps, anomalies: Anomalies) -> Realisation:
    """Run the structural equations: stamps (s,) and their anomalies give the observed series and its slopes."""
    quarter, yearday = _clock(stamps)
    season = np.cos(2 * np.pi * (yearday - 20) / 365.25)  # 1 in deep winter, -1 in high summer

    normal = _normal_temperature(region, quarter, season)
    temperature = normal + anomalies.temperature

    clear = _clear_sky(region, quarter, yearday)
    brightness = expit(0.75 - 0.55 * season + region.cloud_sd * anomalies.cloud)
    clearness = 0.10 + 0.90 * brightness
    solar = region.solar_capacity * clear * clearness
    solar_per_sd = region.solar_capacity * clear * 0.90 * brightness * (1 - brightness) * region.cloud_sd

    curve = expit(
        -1.25 + 0.45 * season + 0.12 * np.cos(2 * np.pi * (quarter - 8) / DAY) + region.wind_sd * anomalies.wind
    )
    wind = 0.97 * region.wind_capacity * curve
    wind_per_sd = 0.97 * region.wind_capacity * curve * (1 - curve) * region.wind_sd

    keep = 1 - region.inertia
    inside, _ = lfilter([region.inertia], [1.0, -keep], temperature, zi=[keep * (normal[0] + anomalies.start)])
    felt = region.direct * temperature + (1 - region.direct) * inside
    cold, hot = (15.0 - felt) / region.bend, (felt - 19.5) / region.bend
    weather = region.bend * (region.heating * _softplus(cold) + region.cooling * _softplus(hot))
    load_per_degree = region.cooling * expit(hot) - region.heating * expit(cold)
    load = _habits(stamps, quarter, season) + weather + anomalies.load

    residual = load - solar - wind + anomalies.outage
    offer, price_per_mw = _merit_order(residual)
    uncapped = offer + anomalies.price
    price = np.minimum(uncapped, region.price_cap)

    values = np.stack([load, price, temperature, solar, wind], axis=1)
    slopes = Slopes(load_per_degree, price_per_mw, uncapped < region.price_cap, solar_per_sd, wind_per_sd)
    return Realisation(stamps, values, slopes)


def sensitivity(
    region: Region, slopes: Slopes, starts: NDArray[np.integer], steps: int, weights: Floats, target: int
) -> Floats:
    """Derivative of the weighted target block with respect to every observed input of the context: (n, t, 5).

    In the target's unit per standard deviation of the anomaly behind the input, with the later noise held fixed and the
    other observed inputs held at what they are: the derivative of the function of the context that a perfect forecaster
    would be. starts: (n,) row of the first target step; weights: (n, h) weights of the block's steps;
    target: LOAD or PRICE. Derivation, with j = 1..h ahead and i = 0.. back from the last context step k:

    - a step of price passes its slope on: to v, whose memory V reaches back to the observed prices, and to N[k+j];
    - an observed price fixes v = P - merit order(N), so raising N[k-i] at a fixed price lowers v there: -V times slope;
    - a step of load passes on to u, whose memory U reaches back to the observed loads, and to F[k+j];
    - an observed load fixes u = L - weather(F), so F[k-i] acts with -U times slope;
    - F acts on temperature directly and through every older step of the EMA; temperature, cloud and wind persist from
      their last observed step (cloud: the last step in daylight) with their AR(1) factor.
    """
    n, horizon = weights.shape
    rows = starts[:, None] + np.arange(-steps, horizon)
    ahead = slice(steps, None)
    back = slice(steps - 1, None, -1)  # i = 0 is the last context step
    per_degree, per_mw = slopes.load_per_degree[rows], slopes.price_per_mw[rows]
    free = slopes.price_free[rows].astype(np.float64)
    solar, wind = slopes.solar_per_sd[rows], slopes.wind_per_sd[rows]

    on_residual = np.zeros((n, steps + horizon))
    on_load = np.zeros((n, steps + horizon))
    on_price = np.zeros((n, steps))
    if target == PRICE:
        passed = weights * free[:, ahead]
        memory = region.price_noise.response(horizon, steps)[:, ::-1]  # columns in the order of the context
        on_price = np.einsum("nh,ht->nt", passed, memory) * free[:, :steps]
        on_residual[:, ahead] = passed * per_mw[:, ahead]
        on_residual[:, :steps] = -on_price * per_mw[:, :steps]
        on_load += on_residual
    else:
        on_load[:, ahead] = weights
    load_memory = region.load_noise.response(horizon, steps)[:, ::-1]
    carried = np.einsum("nh,ht->nt", on_load[:, ahead], load_memory)
    on_load[:, :steps] += carried

    # Felt temperature: the later loads respond to it, the observed ones fix u and so respond with the sign turned.
    on_felt = np.concatenate([-carried, on_load[:, ahead]], axis=1) * per_degree
    keep = 1 - region.inertia
    echo = _filtered([region.inertia], [1.0, -keep], on_felt[:, ::-1])[:, ::-1]
    on_temperature = region.direct * on_felt + (1 - region.direct) * echo
    fade = np.exp(-np.arange(1, horizon + 1) / region.temperature_memory)
    on_temperature[:, steps - 1] += np.einsum("nh,h->n", on_temperature[:, ahead], fade)

    found = np.zeros((n, steps, len(CHANNELS)))
    found[:, :, LOAD] = on_load[:, :steps] * region.load_noise.sd
    found[:, :, PRICE] = on_price * region.price_noise.sd
    found[:, :, TEMPERATURE] = on_temperature[:, :steps] * region.temperature_sd
    found[:, :, WIND] = -on_residual[:, :steps] * wind[:, :steps]
    fade = np.exp(-np.arange(1, horizon + 1) / region.wind_memory)
    found[:, -1, WIND] -= np.einsum("nh,h->n", on_residual[:, ahead] * wind[:, ahead], fade)
    found[:, :, SOLAR] = -on_residual[:, :steps] * solar[:, :steps]
    daylight = solar[:, back] > 0
    lit = np.flatnonzero(daylight.any(axis=1))
    dark = daylight[lit].argmax(axis=1)  # steps since the sun was last up
    fade = np.exp(-(dark[:, None] + np.arange(1, horizon + 1)) / region.cloud_memory)
    found[lit, steps - 1 - dark, SOLAR] -= (on_residual[lit][:, ahead] * solar[lit][:, ahead] * fade).sum(axis=1)
    return found


def _filtered(numerator: Sequence[float], denominator: Sequence[float] | Floats, values: Floats) -> Floats:
    """The recursion along the last axis, starting from rest."""
    return np.asarray(lfilter(numerator, denominator, values))


def _clock(stamps: Stamps) -> tuple[Floats, Floats]:
    """Quarter-hour of the day and day of the year (with its fraction), each (s,)."""
    minutes = (stamps - stamps.astype("datetime64[D]")).astype("timedelta64[m]").astype(np.float64)
    year = stamps.astype("datetime64[Y]")
    yearday = (stamps - year.astype(stamps.dtype)).astype("timedelta64[m]").astype(np.float64) / (24 * 60)
    return minutes / 15, yearday


def _normal_temperature(region: Region, quarter: Floats, season: Floats) -> Floats:
    swing = 3.6 - 1.7 * season  # the day cycle is wider in summer; warmest at 15:00
    day = 2 * np.pi * (quarter - 60) / DAY
    return region.temperature_mean - region.temperature_season * season + swing * (np.cos(day) + 0.18 * np.cos(2 * day))


def _clear_sky(region: Region, quarter: Floats, yearday: Floats) -> Floats:
    """Clear-sky output per unit of capacity: sine of the sun's elevation with air-mass loss; 0 below 2 % (cut-in)."""
    declination = np.radians(-23.44) * np.cos(2 * np.pi * (yearday + 10) / 365.25)
    latitude = np.radians(region.latitude)
    hour_angle = 2 * np.pi * (quarter + 0.5 - DAY / 2) / DAY
    sine = np.sin(latitude) * np.sin(declination) + np.cos(latitude) * np.cos(declination) * np.cos(hour_angle)
    up = np.maximum(sine, 1e-3)
    output = np.where(sine > 0, up**1.15 * np.exp(-0.09 / up) * 1.12, 0.0)
    return np.where(output > 0.02, output, 0.0)


def _softplus(x: Floats) -> Floats:
    return np.logaddexp(0.0, x)


def _bump(quarter: Floats, hour: Floats | float, width: float) -> Floats:
    """A smooth bump at `hour`, `width` hours wide, periodic over the day."""
    return np.exp((np.cos(2 * np.pi * (quarter / 4 - hour) / 24) - 1) * (24 / (2 * np.pi * width)) ** 2)


def _habits(stamps: Stamps, quarter: Floats, season: Floats) -> Floats:
    """Load of a day without weather: two peaks on working days, less and later at weekends, an earlier winter dusk."""
    day = stamps.astype("datetime64[D]").astype(np.int64)
    days = np.arange(day[0] - 1, day[-1] + 2)
    weekday = (days + 3) % 7
    level = np.array([0.98, 1.0, 1.0, 1.0, 0.93, 0.28, 0.0])[weekday]  # Monday to Sunday
    # Days change into one another over four hours around midnight.
    hour = quarter / 4
    here = day - days[0]
    neighbour = np.where(hour >= 12, level[here + 1], level[here - 1])
    share = np.clip(0.5 - np.minimum(hour, 24 - hour) / 4, 0, 0.5)
    work = level[here] * (1 - share) + neighbour * share
    night = 2380 - 210 * _bump(quarter, 3.5, 3.2)
    working = 820 * _bump(quarter, 8.3, 2.1) + 640 * _bump(quarter, 12.5, 3.6) + 300 * _bump(quarter, 16.5, 2.6)
    leisure = 330 * _bump(quarter, 10.8, 2.8) + 250 * _bump(quarter, 13.5, 3.0)
    evening = (740 + 130 * season) * _bump(quarter, 19.6 - 0.9 * season, 2.0) + 150 * _bump(quarter, 22.0, 1.5)
    return night + 260 * work + work * working + (1 - work) * leisure + evening


def _merit_order(residual: Floats) -> tuple[Floats, Floats]:
    """Marginal offer at a residual load, and its slope: must-run plant, base, mid-merit, peakers, scarcity."""
    parts = (  # (level where it starts in MW, width of the bend in MW, USD/MWh per MW beyond it)
        (2900.0, 260.0, 0.038),
        (3600.0, 150.0, 0.100),
        (3950.0, 80.0, 0.520),
    )
    offer = 36.0 + 0.011 * (residual - 2500.0)
    slope = np.full_like(residual, 0.011)
    for start, width, steepness in parts:
        x = (residual - start) / width
        offer += steepness * width * _softplus(x)
        slope += steepness * expit(x)
    low = (1650.0 - residual) / 110.0
    offer -= 0.120 * 110.0 * _softplus(low)
    slope += 0.120 * expit(low)
    return offer, slope
