"""Judgements about a site: certificates, rights, services, queues, settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nebula.cli.doctor.facts import (
    Certificate,
    InstanceFacts,
    ListenerFacts,
    QueueFacts,
    RightsFacts,
    SettingsFacts,
    StatusFacts,
)
from nebula.cli.doctor.findings import Finding, Outcome, Problem, counted, found, listed
from nebula.cli.tables import date, duration, number, percent

__all__ = [
    "check_alarms", "check_anonymous", "check_capabilities", "check_certificates", "check_consumers",
    "check_dead_letters", "check_grants", "check_health", "check_instances", "check_openness",
    "check_pings", "check_principals", "check_service_versions", "check_settings", "check_stale_files",
]  # fmt: skip

_DAY: Final = 86_400.0
# Time to order and install a new one.
_CERTIFICATE_DAYS: Final = 30

_NEARLY_USED: Final = 0.8
_SLOW_PING: Final = 1.0


def check_certificates(name: str, certificates: Sequence[Certificate], now: float, none: str) -> Finding:
    """Certificates are valid for some time to come.

    Args:
        name: of the check.
        certificates: of one kind.
        now: seconds since 1970.
        none: what the finding says without certificates.
    """
    if not certificates:
        return Finding(name, Outcome.OK, none)
    first = min(certificates, key=lambda each: each.ends_at)
    days = int((first.ends_at - now) // _DAY)
    return found(name, f"valid for {number(days)} days ({first.who})", _ending(certificates, now))


def _ending(certificates: Iterable[Certificate], now: float) -> Iterator[Problem]:
    for each in certificates:
        left = each.ends_at - now
        if left <= 0:
            what = f"{each.who} has expired, on {date(each.ends_at)}"
            yield Problem(Outcome.ERROR, what, "install a new one, and reload the broker (SIGHUP)")
        elif left < _CERTIFICATE_DAYS * _DAY:
            what = f"{each.who} expires in {duration(left)}, on {date(each.ends_at)}"
            yield Problem(Outcome.WARNING, what, "install a new one, and reload the broker (SIGHUP)")


def check_openness(rights: RightsFacts, listeners: Sequence[ListenerFacts]) -> Finding:
    """Principals need grants for what they do."""
    if not rights.is_open:
        fine = f"{number(rights.capabilities)} capabilities, {number(rights.identities)} identities"
        return Finding("rights.configured", Outcome.OK, fine)
    what = (
        "no rights are configured: every principal may call all verbs of the broker and use all destinations"
    )
    cure = 'name a file of capabilities with rights = ["rights.toml"]'
    # A broker for this machine alone needs none.
    if all(each.is_loopback for each in listeners):
        return Finding(
            "rights.configured", Outcome.OK, "no rights are configured, and it listens on loopback only"
        )
    return found("rights.configured", "", [Problem(Outcome.WARNING, what, cure)])


def check_anonymous(rights: RightsFacts | None, listeners: Sequence[ListenerFacts]) -> Finding:
    """Peers prove who they are, at least those from elsewhere."""
    problems = []
    reached = [each.url for each in listeners if each.is_anonymous and not each.is_loopback]
    if reached:
        # Anonymous readers may be intended; anonymous operators never are.
        may_operate = rights is not None and bool(rights.anonymous_verbs)
        what = f"other machines may connect without authentication at {listed(reached)}"
        if may_operate and rights is not None:
            what += f", and call {listed(rights.anonymous_verbs)}"
        cure = "set anonymous = false for the listener, with users, jwks or client_ca"
        problems = [Problem(Outcome.ERROR if may_operate else Outcome.WARNING, what, cure)]
    elif rights is not None and not rights.is_open and rights.anonymous_verbs:
        what = f"anonymous peers of this machine may call {listed(rights.anonymous_verbs)}"
        problems = [Problem(Outcome.WARNING, what, 'remove these grants from the identity "anonymous"')]
    return found("rights.anonymous", "no other machine connects without authentication", problems)


def check_capabilities(rights: RightsFacts) -> Finding:
    """Each capability belongs to a principal."""
    problems = []
    if names := rights.unused_capabilities:
        what = f"no principal has the capability {listed(names)}"
        problems = [Problem(Outcome.WARNING, what, "give it to an identity, or remove it")]
    return found("rights.capabilities", "each capability belongs to a principal", problems)


def check_principals(rights: RightsFacts) -> Finding:
    """Each user, and each principal that is connected, may do something."""
    problems = []
    if names := rights.without_rights:
        what = f"no capability for {listed(names)}"
        problems = [
            Problem(Outcome.WARNING, what, "give them capabilities under [identity], or remove the users")
        ]
    return found("rights.principals", "all users and connected principals have capabilities", problems)


def check_grants(rights: RightsFacts) -> Finding:
    """Grants match what there is."""
    problems = []
    if verbs := rights.unknown_verbs:
        what = f"grants of call that match no verb of the broker: {listed(verbs)}"
        problems = [
            Problem(
                Outcome.WARNING, what, "correct or remove them; docs/reference/operations.md lists the verbs"
            )
        ]
    fine = "all grants match something"
    if rights.unmatched:
        # No mistake as such: a destination exists while it is used.
        fine = (
            f"all grants of call match a verb; destinations that do not exist now: {listed(rights.unmatched)}"
        )
    return found("rights.grants", fine, problems)


def check_consumers(queues: Sequence[QueueFacts], dead_letter: str) -> Finding:
    """Each queue with messages has a consumer."""
    unread = [each for each in queues if each.depth and not each.consumers and each.name != dead_letter]
    problems = []
    if unread:
        what = ", ".join(f"{each.name} ({number(each.depth)})" for each in unread[:5])
        more = f" and {len(unread) - 5} more" if len(unread) > 5 else ""
        cure = "start the service or consumer of the queue, or drop the messages with nebula purge"
        problems = [Problem(Outcome.ERROR, f"messages wait without a consumer: {what}{more}", cure)]
    return found("queues.consumers", "each queue with messages has a consumer", problems)


def check_instances(instances: Sequence[InstanceFacts], expected: Sequence[str]) -> Finding:
    """The services that were named have instances."""
    present = {each.service for each in instances}
    problems = []
    if missing := [name for name in expected if name not in present]:
        what = f"no instance of {listed(missing)}"
        problems = [
            Problem(Outcome.ERROR, what, "start it with nebula run, or its unit; its log says why it ended")
        ]
    fine = f"{counted(len(instances), 'instance')} of {counted(len(present), 'service')}"
    return found("services.instances", fine, problems)


def check_pings(instances: Sequence[InstanceFacts]) -> Finding:
    """Each instance replies."""
    silent = [f"{each.service}/{each.name}" for each in instances if each.seconds is None]
    slow = [
        f"{each.service}/{each.name} ({duration(each.seconds)})"
        for each in instances
        if each.seconds is not None and each.seconds > _SLOW_PING
    ]
    problems = []
    if silent:
        cure = "look at its log and its load (nebula stats); restart it if it hangs"
        problems.append(Problem(Outcome.ERROR, f"no reply from {listed(silent)}", cure))
    if slow:
        cure = "see what keeps it busy (nebula stats), or start more instances"
        problems.append(Problem(Outcome.WARNING, f"slow to reply: {listed(slow)}", cure))
    return found("services.ping", "all instances reply", problems)


def check_health(instances: Sequence[InstanceFacts]) -> Finding:
    """No hook of a service's health reports a problem."""
    problems = [
        Problem(
            Outcome.ERROR,
            f"{each.service}/{each.name}: {listed(each.failing)}",
            "see to what the hook checks; the log of the instance has the exception",
        )
        for each in instances
        if each.failing
    ]
    return found("services.health", "no instance reports a problem", problems)


def check_service_versions(instances: Sequence[InstanceFacts]) -> Finding:
    """The instances of a service are alike."""
    problems = []
    for service in sorted({each.service for each in instances}):
        own = [each for each in instances if each.service == service]
        versions = sorted({each.version for each in own if each.version})
        contracts = {each.contracts for each in own if each.contracts}
        if len(versions) > 1 or len(contracts) > 1:
            which = f"versions {listed(versions)}" if len(versions) > 1 else "different contracts"
            cure = "finish the rollout: a call may reach any of the instances"
            problems.append(Problem(Outcome.WARNING, f"{service} has {which}", cure))
    return found("services.versions", "the instances of each service are alike", problems)


def check_dead_letters(status: StatusFacts) -> Finding:
    """No message has died."""
    count = status.dead_letters
    what = counted(count, "dead letter")
    cure = "nebula dlq list says why; replay them when the cause is mended, or purge them"
    problems = [Problem(Outcome.WARNING, what, cure)] if count else []
    return found("queues.dead", "no dead letters", problems)


def check_alarms(status: StatusFacts) -> Finding:
    """The broker takes traffic, and has room for more."""
    return found("broker.alarms", "ready, with room for more", _alarms(status))


def _alarms(status: StatusFacts) -> Iterator[Problem]:
    if status.not_ready is not None:
        yield Problem(Outcome.ERROR, f"not ready: {status.not_ready}", "the broker's log says more")
    for name, (used, refusals) in sorted(status.pools.items()):
        if used >= _NEARLY_USED:
            what = f"{percent(used)} of all {name} is used"
            yield Problem(Outcome.WARNING, what, "nebula principals --order used says by whom")
        if refusals:
            what = f"{counted(refusals, 'request')} for {name} refused: a principal had used up its share"
            yield Problem(Outcome.WARNING, what, "nebula principals --order refusals says whose")
    if status.held_back:
        what = f"{counted(status.held_back, 'connection')} held back until there is room"
        yield Problem(Outcome.WARNING, what, "nebula queues --order bytes says what fills the memory")


def check_settings(settings: SettingsFacts) -> Finding:
    """The file of settings is right, and the broker runs with it."""
    problems = []
    if settings.problems:
        cure = "correct the file: the broker would not start with it"
        problems.append(Problem(Outcome.ERROR, listed(settings.problems), cure))
    if settings.restart:
        what = f"changed and not in use: {listed(settings.restart)}"
        problems.append(Problem(Outcome.WARNING, what, "restart the broker"))
    if settings.reload:
        what = f"changed and not in use: {listed(settings.reload)}"
        problems.append(
            Problem(
                Outcome.WARNING,
                what,
                "reload the broker (SIGHUP, or nebula call nebula.broker rights.reload)",
            )
        )
    return found("settings.file", "the broker runs with what its file says", problems)


def check_stale_files(names: Sequence[str]) -> Finding:
    """Certificates, users and rights are in use as their files have them."""
    problems = []
    if names:
        what = f"files changed since the broker read them: {listed(names)}"
        problems = [
            Problem(
                Outcome.WARNING,
                what,
                "reload the broker (SIGHUP, or nebula call nebula.broker rights.reload)",
            )
        ]
    return found("settings.files", "no file has changed since it was read", problems)
