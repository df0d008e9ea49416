"""Which way leads to the Spark that was declared."""

from __future__ import annotations

from nebula.spark.host.session import Session
from nebula.spark.lines import Configure


def start_session(config: Configure) -> Session:
    """Start, or reach, the Spark that was declared; takes seconds.

    Not in the main thread, where Spark would take over SIGINT.

    Raises:
        CannotStart: what is missing, or what does not answer, in a sentence.
        Exception: whatever else Spark fails with.
    """
    # Imported late: each needs packages that the other does without.
    if config.remote is not None:
        from nebula.spark.host.connect import ConnectSession

        return ConnectSession(config)
    from nebula.spark.host.classic import ClassicSession

    return ClassicSession(config)
