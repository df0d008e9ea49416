"""How a responder deals with requests."""

from __future__ import annotations

from dataclasses import dataclass

from nebula.rpc.contract.retry import Retry

__all__ = ["AnswerRules"]


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """The rules of one responder; see `Responder` for each."""

    max_attempts: int = 3
    acks_early: bool = False
    debug: bool = False
    max_reply_bytes: int = 8 * 1024 * 1024
    max_waiting: int | None = None
    stream_idle: float = 30.0
    retry: Retry | None = None

    @property
    def message_retry(self) -> Retry:
        """How often functions that listen are called for a message, where they do not say."""
        return (self.retry or Retry(attempts=self.max_attempts)).of_messages()
