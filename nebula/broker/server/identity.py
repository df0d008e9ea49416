"""The identity of a peer, and how the peer has proved it.

Values only: certificates are read in `tls`, passcodes and tokens in `authenticator`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from nebula.broker.core.access import ANONYMOUS


class Proof(StrEnum):
    """How a peer has authenticated."""

    NONE = "none"
    CERTIFICATE = "certificate"
    PASSCODE = "passcode"
    TOKEN = "token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a peer, and its proof.

    Attributes:
        principal: its name in rights, logs and `sender`.
        proof: how it has authenticated.
        expires_at: when the proof expires, in seconds since 1970.
        checked_by: what the proof was checked against: the hash of a passcode, or the fingerprint of the key
            that signed a token. It must still be there after a reload.
    """

    principal: str
    proof: Proof = Proof.NONE
    expires_at: float = inf
    checked_by: str = field(default="", repr=False)

    @property
    def is_proved(self) -> bool:
        """Whether it has a proof, which may become invalid."""
        return self.proof is not Proof.NONE


ANONYMOUS_IDENTITY: Final = Identity(ANONYMOUS)
"""A peer without a proof of identity."""
