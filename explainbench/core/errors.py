"""What can go wrong, each said in one clear sentence."""


class ExplainBenchError(Exception):
    """An error a user can act on: the message says what was wrong, where, and what to do (exit code 2)."""


class BadInput(ExplainBenchError):
    """A file, a parameter or an argument is not as required."""


class Corrupt(ExplainBenchError):
    """Stored bytes no longer have the digest they were stored under."""


class Unavailable(ExplainBenchError):
    """Something outside the process (a tracking server, a disk, a hub) cannot be used now."""


class NotApplicable(Exception):
    """A metric or method is not defined here; carries the reason. Never an error, never a number."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Pending(NotApplicable):
    """A value that a later measurement (ratings, a stage not yet run) will supply; carries the reason."""
