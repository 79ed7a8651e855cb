"""Processes to kill: forked after everything is imported, so that a kill costs what its victim had done and no more."""

import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

SIGKILL_CODE = -int(signal.SIGKILL)


class Child:
    """A forked process, leader of its own group, that runs `work` and ends with 0, or with 1 and a traceback."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            work()
            code = 0
        except BaseException:  # noqa: BLE001, a forked child must never return into the parent's code
            traceback.print_exc()
        finally:
            os._exit(code)

    def wait(self, seconds: float = 1800.0) -> int | None:
        """The exit code, negative for a signal, or None when it still runs after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        return None

    def kill_after(self, seconds: float) -> bool:
        """Send SIGKILL to the child and all it started after `seconds`; False when it had ended before."""
        if self.wait(seconds) is not None:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._until_all_are_gone()
        return True

    def _until_all_are_gone(self, seconds: float = 10.0) -> None:
        """Grandchildren die a moment later, and until then one may hold the store's lock."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.002)


def finished(work: Callable[[], object]) -> int | None:
    """The exit code of `work` in a child of its own."""
    return Child(work).wait()
