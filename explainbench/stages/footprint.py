"""What one call costs on this machine: seconds, CPU seconds, peak memory, energy. Measurements, part of no digest."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")
PEAK_RESET = Path("/proc/self/clear_refs")  # writing 5 sets the peak to the present size (proc(5))
ENERGY = Path("/sys/class/powercap")


@dataclass(slots=True)
class Footprint:
    """seconds, cpu_seconds: of the call; peak_mb: memory above what was held before, None where the system does not
    say; joules: from a hardware counter, None where the machine exposes none to this user."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float | None = None
    joules: float | None = None


@contextmanager
def measured() -> Iterator[Footprint]:
    """Measure what happens inside; the footprint is filled in on leaving."""
    found = Footprint()
    before = _reset_peak()
    energy = _energy()
    cpu, wall = time.process_time(), time.perf_counter()
    yield found
    found.seconds, found.cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    after = _energy()
    if energy and after and all(after[name] >= energy[name] for name in energy):  # a counter that wrapped says nothing
        found.joules = sum(after[name] - energy[name] for name in energy) / 1e6
    peak = _kilobytes("VmHWM")
    if before is not None and peak is not None:
        found.peak_mb = max(0.0, (peak - before) / 1024)


def _reset_peak() -> int | None:
    """Forget the peak so far; the present size in kB, or None where the system offers neither.

    Memory that was freed but kept for reuse is handed back first: a later call would otherwise seem to need none.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc; other C libraries keep what they keep
    try:
        PEAK_RESET.write_text("5", encoding="ascii")
    except OSError:
        return None
    return _kilobytes("VmRSS")


def _kilobytes(key: str) -> int | None:
    try:
        lines = STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), None)


def _energy() -> dict[str, int]:
    """Microjoules of each processor package since some moment; empty where this user may not read them."""
    try:
        return {
            zone.name: int((zone / "energy_uj").read_text(encoding="ascii"))
            for zone in ENERGY.glob("intel-rapl:*")
            if zone.name.count(":") == 1
        }
    except (OSError, ValueError):
        return {}
