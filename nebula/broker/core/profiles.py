"""The two profiles: everything in which plain STOMP and MaXaM (B.1) differ, as one frozen row each.

A profile belongs to a listener (docs/reference/profiles.md). Other code compares no profiles, it asks for a
field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nebula.stomp.dialects import V1_0, V1_1, V1_2, Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a listener behaves where the texts leave a choice. The defaults are those of the profile standard.

    Attributes:
        name: as in the settings.
        dialects: the versions it serves, lowest first (D.1).
        heart_beat: what it offers and desires, in seconds (B.4, D.2).
        max_client_heart_beat: the most seconds for both numbers of a client, which must send them;
            None: it may send any numbers, or none (D.2).
        virtual_host: what `host` must be; None: any host, or none (D.17).
        needs_certificate: a peer is identified by its TLS client certificate only; login and passcode
            are ignored.
        has_transactions: BEGIN, COMMIT and ABORT are served (D.24).
        acks_alone: on last-value destinations an ACK releases the one message that it names, in
            both client modes (D.7).
        acks_by_message_id: ACK and NACK of STOMP 1.1 may leave out `subscription` where the
            `message-id` is un-ACKed on only one subscription.
        ignores_silently: a frame that is not permitted, except SEND, gets no RECEIPT at all (D.5).
        names_twice: a RECEIPT of SEND also has its verdict as `content-disposition` (D.4).
        annotates: the broker adds headers of its own without being asked: `durable` on RECEIPTs,
            `sender` on messages that do not come from a queue (G.sender).
        names_server: CONNECTED has the header `server`.
        bare_names_are_queues: a destination without a known prefix is a queue; otherwise a SEND to
            it is invalid (D.10).
        flags_in_any_case: `true` and `false` in Nebula's headers may be written in any case (G.forms).
        needs_explicit_length: only an explicit `content-length:0` deletes a value (D.28).
        false_removes: UNSUBSCRIBE with `durable:false` removes a durable subscription, and anything
            else pauses it: as MaXaM's table says, instead of its text (D.3).
    """

    name: str = "standard"
    dialects: tuple[Dialect, ...] = (V1_0, V1_1, V1_2)
    heart_beat: tuple[float, float] = (1.0, 1.0)
    max_client_heart_beat: float | None = None
    virtual_host: str | None = None
    needs_certificate: bool = False
    has_transactions: bool = True
    acks_alone: bool = False
    acks_by_message_id: bool = True
    ignores_silently: bool = False
    names_twice: bool = False
    annotates: bool = True
    names_server: bool = True
    bare_names_are_queues: bool = True
    flags_in_any_case: bool = True
    needs_explicit_length: bool = False
    false_removes: bool = False


STANDARD: Final = Profile()

MAXAM: Final = Profile(
    name="maxam",
    dialects=(V1_1, V1_2),
    heart_beat=(10.0, 10.0),
    max_client_heart_beat=10.0,
    virtual_host="MAXVAPI",
    needs_certificate=True,
    has_transactions=False,
    acks_alone=True,
    acks_by_message_id=False,
    ignores_silently=True,
    names_twice=True,
    annotates=False,
    names_server=False,
    bare_names_are_queues=False,
    flags_in_any_case=False,
    needs_explicit_length=True,
)

PROFILES: Final = {profile.name: profile for profile in (STANDARD, MAXAM)}
