"""Access rights: grants, rights that are implied in every configuration, and reserved names.

The rules are those of G.rights (docs/reference/rights.md). `S` there is a service: the part of a name up
to its first dot. A principal that may publish to `/queue/S` is its caller,
and one that may subscribe to it serves it.
What depends on the moment is the core's: reply rights, and whether an inbox is fresh and whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from nebula import headers
from nebula.broker.core.fixed_limits import MAX_REMEMBERED_CHARACTERS, MAX_REMEMBERED_RIGHTS
from nebula.globs import Matcher, compile_glob, escape_glob, is_glob, literal_prefix

IDENTITY: Final = "{identity}"
ANONYMOUS: Final = "anonymous"
"""The principal of peers that do not have to authenticate."""
BROKERS_OWN: Final = "app:nebula"
"""The principal of the broker's own responder, which serves `/queue/nebula.broker`."""

# Verbs of the broker's that need no grant: they show what a decoder of messages has to know, and a caller
# its own rights.
FREE_VERBS: Final = frozenset({"rights.mine", "schema.bound", "schema.get", "schema.list"})

_DEAD_LETTER_VERBS: Final = "dlq."
_QUEUE: Final = "/queue/"
# Its queue is reserved: no grant, and no configuration without grants, lets another principal serve it.
_BROKERS_SERVICE: Final = "nebula"

# What a service says and its callers hear; an instance's or job's name follows the service's.
_SAID_BY_SERVICE: Final = (
    headers.SERVICE_PREFIX,
    f"{headers.SERVICES_TOPIC}.",
    headers.JOB_PREFIX,
    headers.JOB_TOPIC_PREFIX,
)


@dataclass(frozen=True, slots=True)
class Capability:
    """A unit of function (B.7): globs of what may be published, subscribed to, and called.

    `{identity}` in a glob stands for the principal, taken literally. `call` has globs over the
    verbs of the broker itself.

    Raises:
        ValueError: it gives no right at all. The text goes on from the capability's name.
    """

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    call: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.publish or self.subscribe or self.call):
            raise ValueError("gives no right: publish, subscribe or call needs a glob")


@dataclass(frozen=True, slots=True)
class Grants:
    """Capabilities by name, and the names of those that each principal has.

    Raises:
        ValueError: a bad glob, or an identity with an unknown capability.
    """

    capabilities: Mapping[str, Capability]
    identities: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        for name, capability in self.capabilities.items():
            for pattern in (*capability.publish, *capability.subscribe, *capability.call):
                try:
                    check_grant(pattern)
                except ValueError as error:
                    raise ValueError(f'capability {name}: "{pattern}" {error}') from error
        for identity, names in self.identities.items():
            for name in names:
                if name not in self.capabilities:
                    raise ValueError(f'identity "{identity}": no capability is called "{name}"')


def check_grant(pattern: str) -> None:
    """Refuse a glob that could not be granted.

    Raises:
        ValueError: the text goes on from the pattern.
    """
    # Each part is a glob by itself, so that no identity ends up as the members of a class.
    for part in pattern.split(IDENTITY):
        compile_glob(part)
    compile_glob(pattern.replace(IDENTITY, "identity"))


class Rights:
    """What one principal may do; shared by all its sessions.

    The object stays the same when rights are reloaded, only its answers change. Warm ones are a
    dictionary access. It is made by `AccessPolicy.rights_of`.

    Attributes:
        principal: who it is.
    """

    __slots__ = ("__weakref__", "_dead_letter_queues", "_granted", "_publish", "_subscribe", "principal")

    def __init__(self, principal: str, granted: _Granted | None, dead_letter_queues: frozenset[str]) -> None:
        self.principal = principal
        self._granted = granted
        self._dead_letter_queues = dead_letter_queues
        # Answers by destination, worked out when first asked for.
        self._publish: dict[str, bool] = {}
        self._subscribe: dict[str, bool] = {}

    @property
    def is_open(self) -> bool:
        """No rights are configured: only reserved names are refused."""
        return self._granted is None

    def may_publish(self, destination: str) -> bool:
        """Whether a SEND there is granted or implied.

        False for every inbox: a reply right, or that the inbox is the sender's own, is the core's
        to know.
        """
        answer = self._publish.get(destination)
        if answer is None:
            answer = _remember(self._publish, destination, answer=self._judge_publish(destination))
        return answer

    def may_subscribe(self, destination: str) -> bool:
        """Whether one may subscribe to this name, taken literally.

        True for every inbox: that it is fresh and asked for exclusively is the core's to check.
        """
        answer = self._subscribe.get(destination)
        if answer is None:
            answer = _remember(self._subscribe, destination, answer=self._judge_subscribe(destination))
        return answer

    # Whether what was sent there may be shown, whatever was subscribed to. Asked at each delivery (D.36): a
    # glob over services shows only those that the principal may call. The same question as for SUBSCRIBE, as
    # nothing is received by way of a glob that could not be subscribed to by name.
    may_receive = may_subscribe

    def may_call(self, verb: str) -> bool:
        """Whether a verb of the broker itself, such as `schema.register`, may be called."""
        if self._granted is None or verb in FREE_VERBS:
            return True
        return _matches(self._granted.call, verb)

    def may_look_into(self, queue: str) -> bool:
        """Whether a verb may show the messages of this queue, or move them to where its caller can read them.

        For most queues the right to call the verb is enough. A dead-letter queue has to be named, as for
        SUBSCRIBE: by a grant of `subscribe`, or by a grant of `call` that begins with `dlq.`.
        """
        if self._granted is None or queue not in self._dead_letter_queues:
            return True
        return queue in self._granted.named or self._granted.names_dead_letters

    @property
    def may_call_any(self) -> bool:
        """Whether it may call verbs of the broker itself that need a grant."""
        return self._granted is None or bool(self._granted.call)

    @property
    def is_operator(self) -> bool:
        """Whether a grant lets it call verbs of the broker itself, or it is the broker's own responder.

        Without configured rights there are no operators: all principals may call every verb.
        """
        return self.principal == BROKERS_OWN or (self._granted is not None and bool(self._granted.call))

    def may_keep(self, pattern: str) -> bool:
        """Whether a subscription to this name or glob may be durable.

        It may subscribe to the name, or one of its `subscribe` globs may overlap this glob. What is kept
        while a peer is away costs the broker memory and disk.
        """
        if self._granted is None:
            return True
        if not is_glob(pattern):
            return self.may_subscribe(pattern)
        prefix = literal_prefix(pattern)
        return any(prefix.startswith(each) or each.startswith(prefix) for each in self._granted.prefixes)

    def _replace(self, granted: _Granted | None) -> None:
        self._granted = granted
        self._publish.clear()
        self._subscribe.clear()

    def _judge_publish(self, destination: str) -> bool:
        if destination.startswith(headers.RESERVED_QUEUE_PREFIX):
            # Its verbs check capabilities themselves.
            return destination == headers.BROKER_QUEUE
        if destination == headers.SERVICES_TOPIC:
            return True
        if not destination.startswith(headers.RESERVED_PREFIXES) and self._is_granted_publish(destination):
            return True
        if service := _service_speaking(destination):
            return self._serves(service)
        service = _service_spoken_to(destination)
        return service is not None and self._calls(service)

    def _judge_subscribe(self, destination: str) -> bool:
        if destination.startswith(headers.RESERVED_QUEUE_PREFIX):
            return destination.startswith(headers.INBOX_PREFIX) or self.principal == BROKERS_OWN
        if destination in self._dead_letter_queues:
            # Even where its name is that of an instance of a service: no implied right opens it.
            return self._is_granted_subscribe(destination)
        if not destination.startswith(headers.RESERVED_PREFIXES) and self._is_granted_subscribe(destination):
            return True
        if service := _service_speaking(destination):
            return self._calls(service)
        service = _service_spoken_to(destination)
        return service is not None and self._serves(service)

    def _calls(self, service: str) -> bool:
        return service == _BROKERS_SERVICE or self._is_granted_publish(_QUEUE + service)

    def _serves(self, service: str) -> bool:
        if service == _BROKERS_SERVICE:
            return self.principal == BROKERS_OWN
        return self._is_granted_subscribe(_QUEUE + service)

    def _is_granted_publish(self, destination: str) -> bool:
        return self._granted is None or _matches(self._granted.publish, destination)

    def _is_granted_subscribe(self, destination: str) -> bool:
        if self._granted is None:
            return True
        if destination in self._dead_letter_queues:
            # What others sent ends there: no glob opens it by chance.
            return destination in self._granted.named
        return _matches(self._granted.subscribe, destination)


class AccessPolicy:
    """The rights of every principal, and their reload.

    Attributes:
        grants: None: no rights are configured, and only reserved names are refused. Read-only.
        epoch: rises with each reload: answers that were kept elsewhere are stale.
    """

    def __init__(
        self,
        grants: Grants | None = None,
        *,
        dead_letter_queues: frozenset[str] = frozenset({headers.DEAD_LETTER_QUEUE}),
    ) -> None:
        """Begin with these grants; None leaves everything open that is not reserved.

        Args:
            dead_letter_queues: queues that only a grant of their exact name opens to readers.
        """
        self.epoch = 0
        self.grants = grants
        self._dead_letter_queues = dead_letter_queues
        # Sessions hold the rights of their principals; what no session holds is forgotten, so names that
        # peers make up cost nothing once they have gone.
        self._rights: WeakValueDictionary[str, Rights] = WeakValueDictionary()

    @property
    def is_open(self) -> bool:
        """No rights are configured for any principal: only reserved names are refused."""
        return self.grants is None

    def rights_of(self, principal: str) -> Rights:
        """The one `Rights` of this principal, for as long as it is referred to."""
        rights = self._rights.get(principal)
        if rights is None:
            granted = _granted_to(principal, self.grants)
            rights = self._rights[principal] = Rights(principal, granted, self._dead_letter_queues)
        return rights

    def replace(self, grants: Grants | None) -> None:
        """Reload: all `Rights` change in place, at once."""
        self.grants = grants
        self.epoch += 1
        for principal, rights in list(self._rights.items()):
            rights._replace(_granted_to(principal, grants))


@dataclass(frozen=True, slots=True)
class _Granted:
    """What the grants give to one principal, compiled."""

    publish: tuple[Matcher, ...]
    subscribe: tuple[Matcher, ...]
    call: tuple[Matcher, ...]
    named: frozenset[str]
    """What may be subscribed to as written: plain names among the globs."""
    prefixes: frozenset[str]
    """The beginnings of the `subscribe` globs, up to their first special character."""
    names_dead_letters: bool
    """Whether a `call` glob begins with `dlq.`."""


def _remember(answers: dict[str, bool], destination: str, *, answer: bool) -> bool:
    """Keep an answer, and return it. Bounded, as peers choose the names."""
    if len(destination) <= MAX_REMEMBERED_CHARACTERS:
        if len(answers) >= MAX_REMEMBERED_RIGHTS:
            # To begin anew costs less than to know which are the oldest.
            answers.clear()
        answers[destination] = answer
    return answer


def _granted_to(principal: str, grants: Grants | None) -> _Granted | None:
    if grants is None:
        return None
    capabilities = [grants.capabilities[name] for name in grants.identities.get(principal, ())]
    subscribe = [pattern for each in capabilities for pattern in each.subscribe]
    call = [pattern for each in capabilities for pattern in each.call]
    literal = escape_glob(principal)
    return _Granted(
        publish=_compile((pattern for each in capabilities for pattern in each.publish), literal),
        subscribe=_compile(subscribe, literal),
        call=_compile(call, literal),
        named=frozenset(subscribe),
        prefixes=frozenset(literal_prefix(pattern.replace(IDENTITY, literal)) for pattern in subscribe),
        names_dead_letters=any(pattern.startswith(_DEAD_LETTER_VERBS) for pattern in call),
    )


def _compile(patterns: Iterable[str], identity: str) -> tuple[Matcher, ...]:
    matchers: list[Matcher] = []
    # Capabilities overlap (B.7): the same glob need not be tried twice.
    for pattern in dict.fromkeys(patterns):
        try:
            matchers.append(compile_glob(pattern.replace(IDENTITY, identity)))
        except ValueError:
            # The pattern was checked, so this identity makes it too long for a glob: no right then.
            continue
    return tuple(matchers)


def _matches(matchers: tuple[Matcher, ...], name: str) -> bool:
    return any(matches(name) for matches in matchers)


def _service_speaking(destination: str) -> str | None:
    """The service that tells its callers something there, if it is such a destination."""
    for prefix in _SAID_BY_SERVICE:
        if destination.startswith(prefix):
            return _before_dot(destination.removeprefix(prefix))
    return None


def _service_spoken_to(destination: str) -> str | None:
    """The service that callers cancel at there, or one of whose instances they speak to."""
    if destination.startswith(headers.CANCEL_TOPIC_PREFIX):
        return destination.removeprefix(headers.CANCEL_TOPIC_PREFIX).partition(".")[0] or None
    if destination.startswith(_QUEUE):
        return _before_dot(destination.removeprefix(_QUEUE))
    return None


def _before_dot(name: str) -> str | None:
    """The service of `S.*`, where `*` is a glob's: it does not pass a slash."""
    service, dot, rest = name.partition(".")
    return service if service and dot and "/" not in rest else None
