"""Declared log events of brokers that run for tests."""

from __future__ import annotations

from typing import Final

from nebula.log_events import ERROR, Event

EVENTS: Final = (Event("broker failed", "a broker for tests ended by itself", ERROR, "error"),)
"""All log events of `nebula.testing`."""
