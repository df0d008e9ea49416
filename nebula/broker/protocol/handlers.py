"""Handlers of the frames of clients: from frames to the core, and from its verdicts to RECEIPTs.

One method for each row of `nebula.broker.protocol.states.TABLE`, of the name that the row gives. By the time
it is called the frame is legal and has the headers that it must have. All methods have one shape: the frame
and the time. `Journal.told` is None before each of them; the RECEIPT of a frame waits for the batch that is
there afterwards.

A fault of the peer's is a `RemoteProtocolError` (or the core's `Refused`) and ends the connection; a request
that policy turns down gets a RECEIPT that says so.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from nebula import headers as names
from nebula.broker.core.account import Refusal
from nebula.broker.core.broker import Broker
from nebula.broker.core.fixed_limits import LONG_FRAME_ACTIONS
from nebula.broker.core.messages import ACCEPTED, Head, Verdict
from nebula.broker.core.send import HeldSend, Outcome
from nebula.broker.core.session import Session
from nebula.broker.core.subscription import Feed, Nack, Subscription
from nebula.broker.core.transactions import HeldSettlement, Transactions
from nebula.broker.protocol import requests
from nebula.broker.protocol.encoding import Encoder, to_client
from nebula.broker.protocol.requests import read_settled
from nebula.broker.protocol.send_headers import read_send
from nebula.errors import RemoteProtocolError
from nebula.globs import is_glob
from nebula.stomp import header_lines
from nebula.stomp.dialects import V1_2, Dialect
from nebula.stomp.frames import Frame
from nebula.stomp.heartbeat import HeartBeat, heart_beat_of

_REPLY_ID: Final = header_lines.start_of(names.REPLY_ID)


class Then(Enum):
    """What comes after a frame, unless it is the next one."""

    ADMIT = auto()
    """The peer is identified: the session begins."""
    HOLD_BACK = auto()
    """The frame waits: the peer is read no further until there is room."""
    REST = auto()
    """It was much work: other connections are served before the next one."""


class Handlers:
    """One connection's handlers of frames.

    Args:
        broker: what the requests go to.
        session: the connection's.
        server: how we name ourselves in CONNECTED.
        authenticates: the peer is identified by the login and passcode of its CONNECT.

    Attributes:
        dialect: of what is written to the peer; before its CONNECT one that every client can read.
        encoder: writes what the session is told.
        credentials: login and passcode of a CONNECT that waits for the verdict on them; else None.
        version: what was negotiated; None: no session has begun.
    """

    def __init__(self, broker: Broker, session: Session, server: str, *, authenticates: bool = False) -> None:
        self.dialect: Dialect = V1_2
        self.encoder = Encoder(V1_2, broker.incarnation, session.profile)
        self.credentials: tuple[str | None, str | None] | None = None
        self.version: str | None = None
        self._broker = broker
        self._session = session
        self._server = server
        self._authenticates = authenticates
        self._connect: requests.ConnectRequest | None = None
        self._max_identifier = broker.limits.max_identifier_characters
        # The values of a subscription whose snapshot is too large for one turn.
        self._unfinished: Feed | None = None
        # The reasons for rejected SENDs without a receipt that were logged for this connection.
        self._unheard: set[Verdict] = set()
        self._receipts = broker.receipts

    # CONNECT, STOMP

    def connect(self, frame: Frame, now: float) -> Then | None:  # noqa: ARG002
        """CONNECT or STOMP; a `receipt` is ignored (D.26).

        Without `Then.ADMIT` the caller judges the `credentials`.
        """
        frame.receipt = None  # also where it is refused
        profile = self._session.profile
        # An ERROR from here on is in the version that both know.
        self.dialect = requests.agree_on_version(frame, profile)
        self._connect = request = requests.read_connect(frame, self.dialect, profile, self._broker.limits)
        if self._authenticates:
            self.credentials = request.login, request.passcode
            return None
        return Then.ADMIT

    def enter(self, now: float) -> HeartBeat:
        """Begin the session and say CONNECTED, with the `session` (A.9.5, D.18).

        Returns:
            The `heart-beat` of the CONNECT.

        Raises:
            Refused: by the core; the connection ends.
        """
        request, self._connect = self._connect, None
        assert request is not None, "there was a CONNECT"
        self.credentials = None
        self._broker.enter(self._session, request.client_id, now)
        self.version = self.dialect.version
        self.encoder = Encoder(self.dialect, self._broker.incarnation, self._session.profile)
        profile = self._session.profile
        fields = {"session": self._session.id}
        if self.dialect.announces_version:
            fields = {"version": self.version, **fields}
            if profile.names_server:
                fields["server"] = self._server
            # D.2: also to clients that sent none.
            fields["heart-beat"] = "{},{}".format(*heart_beat_of(*profile.heart_beat))
        self._session.say(to_client(Frame("CONNECTED", fields), self.dialect))
        return request.heart_beat

    def go_on(self) -> bool:
        """After a `REST`: go on with the frame before it; True: rest once more.

        Raises:
            Refused: it cannot be finished; the connection is closed with an ERROR.
        """
        feed = self._unfinished
        if feed is not None and feed.is_walking and self._broker.values.walk_on(feed):
            return True
        self._unfinished = None
        return False

    def _confirm(self, frame: Frame, result: str | None = None) -> None:
        """Send the RECEIPT that any frame may ask for (A.4)."""
        if frame.receipt is not None:
            more = () if result is None else ((names.RESULT, result),)
            receipt = self.encoder.receipt(frame.receipt, *more)
            self._receipts.say(self._session, receipt, self._receipts.told)

    def _ignore(self, frame: Frame) -> None:
        """Turn down what is not permitted, without a word of why (D.5): that is the operator's."""
        session, destination = self._session, frame.headers["destination"]
        refusal = Refusal(session.principal, session.id, frame.command, destination, names.IGNORED)
        self._broker.account.refuse(refusal)
        if not session.profile.ignores_silently:
            self._confirm(frame, names.IGNORED)

    # SEND

    def send(self, frame: Frame, now: float, *, may_wait: bool = True) -> Then | None:
        """SEND. HOLD_BACK: nothing has happened, and it comes again when there is room.

        Args:
            may_wait: False: where there is no room, it is refused.
        """
        memo = frame.memo
        assert memo is not None, "the parser gives each SEND one"
        plan = memo.value
        if plan is None:
            # Once for all frames that share these headers (known heads, `nebula.stomp.codec`).
            plan = memo.value = read_send(frame, self._broker, self._session)
        unread, most = frame.unread, self._max_identifier
        # It is not among those that `read_send` sees.
        if len(unread) > most and len(header_lines.find(unread, _REPLY_ID) or "") > most:
            plan = Verdict.INVALID
        if type(plan) is Head:
            if plan.transaction is not None:
                return self._hold_send(frame, plan, now)
            verdict = self._broker.send(self._session, plan, frame.body, now, unread, may_wait)
            if verdict is not ACCEPTED:
                if verdict is Verdict.WAIT:
                    return Then.HOLD_BACK
                if frame.receipt is None:
                    self._note_unheard(verdict, plan.destination)
                    if verdict is Verdict.FULL:
                        # Its sender would not learn of it (G.dead-letter).
                        self._broker.sends.dead_letter(plan, frame.body, unread, now)
        elif "transaction" in frame.headers:
            return self._hold_send(frame, plan, now)
        else:
            destination = frame.headers["destination"]
            verdict = self._broker.sends.refuse(plan, self._session, destination)
            if frame.receipt is None:
                self._note_unheard(verdict, destination)
        if frame.receipt is not None and not (verdict is ACCEPTED and type(plan) is Head and plan.is_quiet):
            self._confirm_send(frame.receipt, plan, verdict)
        return None

    def _note_unheard(self, verdict: Verdict, destination: str) -> None:
        """Log that SENDs without a receipt are rejected, once per connection and reason."""
        if verdict is Verdict.DUPLICATE or verdict in self._unheard:
            return
        session = self._session
        refusal = Refusal(session.principal, session.id, "SEND", destination, verdict.value)
        if self._broker.account.note_unheard(refusal):
            self._unheard.add(verdict)

    def _confirm_send(self, receipt: str, plan: Head | Verdict, verdict: Verdict) -> None:
        consumers = None  # G.consumers
        # A sender without the right to send learns nothing about the receivers.
        if type(plan) is Head and plan.kind.holds_messages and verdict is not Verdict.UNAUTHORISED:
            queue = self._broker.queues.by_name.get(plan.destination)
            consumers = 0 if queue is None else len(queue.consumers.subscriptions)
        journal = self._broker.journal
        told = None if journal is None else journal.told
        # A head that is never kept may still have told the store what it replaced, or of its copy.
        is_kept = told is not None and type(plan) is Head and self._broker.may_be_kept(plan)
        self._receipts.say(
            self._session, self.encoder.send_receipt(receipt, verdict, consumers, is_kept=is_kept), told
        )

    # SUBSCRIBE, UNSUBSCRIBE

    def subscribe(self, frame: Frame, now: float) -> Then | None:
        """SUBSCRIBE. Its RECEIPT comes before its first MESSAGE (D.43)."""
        request = requests.read_subscribe(frame, self.dialect, self._broker, self._session.profile)
        session = self._session
        if request.id in session.subscriptions:
            # STOMP 1.2, "SUBSCRIBE id Header"; D.32. In 1.0 two without an id could not be told apart.
            which = f"id {request.id!r}" if "id" in frame.headers else f"to {request.destination}, unnamed,"
            raise RemoteProtocolError(f"the subscription {which} is there already")
        if len(session.subscriptions) + len(session.parted) >= self._broker.limits.max_subscriptions:
            raise RemoteProtocolError(f"more than {self._broker.limits.max_subscriptions} subscriptions")
        if not self._broker.subscriptions.may_subscribe(session, request, now):
            self._ignore(frame)
            return None
        subscription = self._broker.subscriptions.subscribe(session, request)
        subscription.label = self.encoder.label(subscription, names_subscription="id" in frame.headers)
        self._confirm(frame)
        self._broker.begin(subscription, now)
        if subscription.feed is not None and subscription.feed.is_walking:
            self._unfinished = subscription.feed
        # A glob takes a millisecond to compile, and is tried on all last values where they are wanted.
        return Then.REST if not request.kind.holds_messages and is_glob(request.destination) else None

    def unsubscribe(self, frame: Frame, now: float) -> Then | None:
        """UNSUBSCRIBE: a durable one is paused, or removed (D.3); that of a queue may be a drain."""
        session, subscriptions = self._session, self._broker.subscriptions
        removes = requests.read_removes(frame, session.profile)
        keeps = requests.read_flag(frame, names.KEEP_UNACKED, session.profile)
        subscription = self._named_subscription(frame)
        if subscription is not None and keeps and subscription.destination.drain(subscription):
            self._confirm(frame)
            return None
        is_much = subscription is not None and (_holds_much(subscription) or self._has_much_open())
        if subscription is not None:
            result = self._broker.unsubscribe(subscription, now, removes=removes)
        elif removes and subscriptions.remove_paused(session, requests.subscription_id(frame, self.dialect)):
            result = names.REMOVED
        else:
            result = names.IGNORED
        self._confirm(frame, result)
        return Then.REST if is_much else None

    def _named_subscription(self, frame: Frame) -> Subscription | None:
        subscriptions, fields = self._session.subscriptions, frame.headers
        if "id" in fields:
            return subscriptions.get(fields["id"])
        destination = fields["destination"]
        return next((each for each in subscriptions.values() if each.pattern == destination), None)

    # ACK, NACK

    def ack(self, frame: Frame, now: float, nack: Nack | None = None) -> Then | None:
        """ACK, in any version's form; or with `nack` a NACK, which differs only in what it asks for."""
        subscription, message, transaction = read_settled(frame, self.dialect)
        target = self._target(frame, subscription, message)
        is_known = self._settle(target, transaction, now, nack)
        others = frame.headers.get(names.MESSAGE_IDS, "") if nack is None else ""
        if others and target is not None:  # G.message-ids
            numbers = map(self.encoder.message_number, others.split(","))
            named = [(target[0], number) for number in numbers if number is not None]
            is_known = any([is_known, *[self._settle(each, transaction, now, None) for each in named]])
        if frame.receipt is not None:
            # D.24: it is held until the COMMIT. D.22: races are normal, an unknown one is no fault.
            self._confirm(frame, None if is_known or transaction is not None else names.IGNORED)
        if (nack is not None and is_known) or others.count(",") + 1 >= LONG_FRAME_ACTIONS:
            # What a NACK gives back finds its place among all that waits, and goes out again at once.
            return Then.REST
        if len(self._session.subscriptions) <= LONG_FRAME_ACTIONS:
            return None  # looked at first: nearly all sessions have few
        # Without the subscription's id `_target` has searched through all of them.
        names_one = subscription is not None and self.dialect.needs_subscription_id
        return None if names_one else Then.REST

    def _settle(
        self, target: tuple[Subscription, int] | None, transaction: str | None, now: float, nack: Nack | None
    ) -> bool:
        """Settle a message, unless a transaction holds that. Returns whether it was known."""
        if transaction is not None:
            self._transactions().hold_settlement(self._session, transaction, HeldSettlement(target, nack))
            return False
        # Not `*target`: the interpreter inlines only calls whose arguments it can count.
        return target is not None and self._broker.settle(target[0], target[1], now, nack)

    def nack(self, frame: Frame, now: float) -> Then | None:
        """NACK, in any version's form."""
        return self.ack(frame, now, requests.read_nack(frame, self._session.profile, self._broker.limits))

    def _target(
        self, frame: Frame, subscription_id: str | None, message_id: str
    ) -> tuple[Subscription, int] | None:
        """The subscription and number that an ACK or NACK names; None: it is unknown."""
        number = self.encoder.message_number(message_id)
        if number is None:
            return None
        subscriptions = self._session.subscriptions
        subscription = None if subscription_id is None else subscriptions.get(subscription_id)
        if subscription is None and (subscription_id is None or not self.dialect.needs_subscription_id):
            # It names only the message. Linear, but such a peer has few subscriptions.
            holders = [each for each in subscriptions.values() if number in each.unacked]
            if len(holders) > 1 and self.dialect.needs_subscription_id:
                # A message of a topic has the same number on each subscription. STOMP 1.0 cannot name the
                # subscription, so the first one counts there.
                what = f"{frame.command} needs the header subscription"
                raise RemoteProtocolError(f"{what}: {len(holders)} subscriptions have the message")
            subscription = next(iter(holders), None)
        return None if subscription is None else (subscription, number)

    # BEGIN, COMMIT, ABORT

    def _hold_send(self, frame: Frame, plan: Head | Verdict, now: float) -> Then | None:
        """Hold it until the COMMIT. Its RECEIPT means only that it is held; the COMMIT's has the verdict
        (D.24)."""
        is_much = self._is_much_to_part()
        transactions = self._transactions()
        name, receipt = frame.headers["transaction"], frame.receipt
        if receipt is not None and len(receipt) > self._max_identifier:
            # The receipt is kept, to be named if the COMMIT is refused.
            plan, receipt = Verdict.INVALID, None
        if isinstance(plan, Head):
            send = HeldSend(plan, frame.body, frame.unread, receipt)
            transactions.hold_send(self._session, name, send, now)
        else:
            why, destination = Outcome(plan, receipt), frame.headers["destination"]
            transactions.refuse_send(self._session, name, why, destination, now)
        self._confirm(frame)
        return Then.REST if is_much else None

    def begin(self, frame: Frame, now: float) -> None:  # noqa: ARG002
        """BEGIN (D.24)."""
        transactions = self._transactions()
        requests.check_length(frame.headers, "transaction", self._max_identifier)
        transactions.begin(self._session, frame.headers["transaction"])
        self._confirm(frame)

    def abort(self, frame: Frame, now: float) -> Then | None:
        """ABORT."""
        is_much = self._is_much_to_part()
        self._transactions().abort(self._session, frame.headers["transaction"], now)
        self._confirm(frame)
        return Then.REST if is_much else None

    def commit(self, frame: Frame, now: float) -> Then | None:
        """COMMIT. Refused without a receipt to say so, it ends the connection."""
        transactions, name = self._transactions(), frame.headers["transaction"]
        transaction = transactions.of(self._session).get(name)
        # Looked at before the COMMIT, which leaves nothing to count.
        is_large = transaction is not None and len(transaction.actions) > LONG_FRAME_ACTIONS
        is_much = is_large or self._is_much_to_part()
        outcome = transactions.commit(self._session, name, now)
        self._receipts.hold_back(self._session)
        if frame.receipt is not None:
            receipt = self.encoder.commit_receipt(frame.receipt, outcome.verdict, outcome.failed_receipt)
            self._receipts.say(self._session, receipt, self._receipts.told)
        elif outcome.verdict is not Verdict.ACCEPTED:
            raise RemoteProtocolError(f"the transaction is refused: {outcome.verdict.value}")
        return Then.REST if is_much else None

    def _is_much_to_part(self) -> bool:
        """Whether at the end of a transaction much is looked through for what others have of the
        subscriptions that have ended."""
        return bool(self._session.parted) and self._has_much_open()

    def _has_much_open(self) -> bool:
        transactions = self._broker.transactions.of(self._session)
        return sum(len(transaction.actions) for transaction in transactions.values()) > LONG_FRAME_ACTIONS

    def _transactions(self) -> Transactions:
        """All transactions; a fault where the profile has none."""
        if not self._session.profile.has_transactions:
            raise RemoteProtocolError("there are no transactions here")
        return self._broker.transactions

    # DISCONNECT

    def disconnect(self, frame: Frame, now: float) -> None:
        """DISCONNECT (A.11.6). D.25: no more messages, then what was written, the RECEIPT, the end."""
        self._broker.close_session(self._session, now, lost=False, is_told=True)
        self._confirm(frame)


def _holds_much(subscription: Subscription) -> bool:
    feed = subscription.feed
    return max(len(subscription.unacked), feed.pending_count if feed else 0) > LONG_FRAME_ACTIONS
