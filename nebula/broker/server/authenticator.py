"""Authentication of peers by passcode (argon2) or by token (JWT).

A certificate is judged in `tls`, without waiting. Here a peer proves its identity with the `login` and
`passcode` of CONNECT, or an `Authorization` of HTTP. A passcode of three parts with dots between them is a
token.

Theory. The peers are strangers until this module has decided, and the decision is made expensive on purpose:
an argon2 hash takes 64 MiB and a tenth of a second of a core, so that a stolen file of hashes is worth
little. So:

- Hashes are computed in a thread, a few at a time and a few per second, with one line for each network
  address (`rate_limit`). An address that asks without end waits behind itself.
- What was verified is remembered, so that a service that reconnects costs nothing. The memory's key is an
  HMAC of login and passcode with a secret of this process: it holds no passcode, and a dump of it cannot be
  searched offline at the speed of a plain hash. An entry counts as long as the users file has the same hash
  for the login.
- Connections that ask about the same login and passcode at the same time share one check (`_checks`). It is
  cancelled when all of them have gone before it began.
- An unknown login must not be told from a wrong passcode, also not by the time it takes. So an unknown login
  is compared with a dummy hash, made with the parameters of the costliest real one.
- A token's signature is checked at once: that is as cheap as a TLS handshake. Only asymmetric algorithms
  count, as a key that verifies must not be able to sign.

Names are dangerous too, because rights are given to them: a login or a token's `sub` must not look like a
name that the broker gives itself (`anonymous@…`, `app:…`) or like a certificate's fingerprint (`_fault_of`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import argon2
import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import Field

from nebula.broker.core.access import ANONYMOUS
from nebula.broker.core.fixed_limits import (
    HASHES_AT_ONCE,
    MAX_LOGGED_CHARACTERS,
    MAX_PASSCODE_WAIT_SECONDS,
    MAX_REMEMBERED_PASSCODES,
    TOKEN_LEEWAY_SECONDS,
)
from nebula.broker.server.identity import ANONYMOUS_IDENTITY, Identity, Proof
from nebula.broker.server.rate_limit import RateLimiter, TooManyWaiting
from nebula.errors import SettingsError
from nebula.logs import PacedLog
from nebula.settings import Settings, load

# Later than any token needs to expire: the claim may be any number.
_END_OF_TIME = 1 << 53

# Asymmetric algorithms only: with HS256 everyone who can check a token can also make one.
_TOKEN_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
# RFC 7518, 6.2.2 and 6.3.2; RFC 8037, 2.
_PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})

# A SHA-256, also as OpenSSL and browsers show it.
_FINGERPRINT: Final = re.compile(r"(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}")

# Characters that are printable by Unicode but invisible.
_INVISIBLE: Final = frozenset("\u115f\u1160\u2800")


class Authenticator:
    """Finds the identity for a login and passcode, for one listener or several.

    Args:
        users: a TOML file whose table `[users]` says `login = "argon2 hash"`; `nebula passcode` makes
            the hash.
        jwks: a JSON file (RFC 7517) with the public keys of token issuers. Passcodes of three parts with dots
            between them, the first of which is a JSON object in Base64, are tokens (JWT). The principal is
            the token's `sub`; the login is ignored.
        audience: the `aud` that tokens must have; None: tokens with an `aud` are refused.
        issuer: the `iss` that tokens must have; None: any.
        anonymous: peers may be anonymous, also those whose login is wrong; without users and tokens
            logins are ignored. Without users, tokens and this, all peers are refused.
        verifications_per_second: how many passcodes are hashed per second. Passcodes that are remembered from
            before do not count.

    Raises:
        SettingsError: a file that cannot be used.
    """

    def __init__(
        self,
        *,
        users: Path | None = None,
        jwks: Path | None = None,
        audience: str | None = None,
        issuer: str | None = None,
        anonymous: bool = False,
        verifications_per_second: float = 20.0,
    ) -> None:
        self._users_file = users
        self._keys_file = jwks
        self._audience = audience
        self._issuer = issuer
        self._may_be_anonymous = anonymous
        self._rate_limiter = RateLimiter(
            verifications_per_second, at_once=HASHES_AT_ONCE, longest_wait=MAX_PASSCODE_WAIT_SECONDS
        )
        self._users: Mapping[str, str] = {}
        # A hash for unknown logins: they take as long as wrong passcodes, so the time tells nothing.
        self._dummy = ""
        self._keys: tuple[jwt.PyJWK, ...] = ()
        # Fingerprints of the keys, by which a reload finds the tokens of keys that are gone.
        self._prints: frozenset[str] = frozenset()
        # Verified logins with their hashes, by a digest that needs the secret.
        self._good: OrderedDict[bytes, tuple[str, str]] = OrderedDict()
        self._secret = secrets.token_bytes(32)
        # Checks that wait or are under way, so that equal questions share one.
        self._checks: dict[_Question, _Check] = {}
        self._log = PacedLog("nebula.broker")
        self.reload()

    def reload(self) -> None:
        """Read the files again. Ask `still_knows` which connections may stay.

        Raises:
            SettingsError: a file that cannot be used; then everything stays as it was.
        """
        # All files are read before anything is assigned: a reload changes everything or nothing.
        users = _read_users(self._users_file)
        keys = _read_keys(self._keys_file)
        if users != self._users:
            # The dummy depends on the users: it has the costliest parameters among their hashes.
            self._dummy = _dummy_for(users)
        self._users, self._keys = users, keys
        self._prints = frozenset(map(_print_of, keys))

    def still_knows(self, identity: Identity) -> bool:
        """Whether the passcode's hash, or the key that signed the token, is still in the files."""
        if identity.proof is Proof.TOKEN:
            return identity.checked_by in self._prints
        # Compared with the hash and not only with the name: a changed passcode ends the connections of the
        # old one.
        return self._users.get(identity.principal) == identity.checked_by

    def admit_at_once(self, login: str | None) -> Identity | None:
        """The identity `anonymous`, if nothing needs to be verified; otherwise None."""
        return (
            # With neither users nor tokens nothing could check a login, so it is ignored and not refused.
            ANONYMOUS_IDENTITY if self._may_be_anonymous and (login is None or not self._can_check) else None
        )

    @property
    def may_be_anonymous(self) -> bool:
        """Whether peers may do without a login."""
        return self._may_be_anonymous

    @property
    def logins(self) -> frozenset[str]:
        """The users in the file that was read last."""
        return frozenset(self._users)

    @property
    def _can_check(self) -> bool:
        return self._users_file is not None or self._keys_file is not None

    async def verify(
        self, login: str | None, passcode: str | None, place: str = "", *, is_strict: bool = False
    ) -> Identity | None:
        """Verify a login and passcode.

        Passcodes are hashed in a thread, a few at a time and a few per second. If too many wait, some are
        refused. An unknown login takes as long as a wrong passcode. Cancelling ends the wait.

        Args:
            place: where the peer comes from; places take turns.
            is_strict: wrong credentials are refused even where peers may be anonymous.

        Returns:
            The identity; None: refused. The log has the reason, which the peer must not learn.
        """
        identity = await self._find(login, passcode, place)
        if identity is None and self._may_be_anonymous and not (is_strict and self._can_check):
            return ANONYMOUS_IDENTITY  # a wrong login is refused unless `anonymous` is set
        return identity

    async def _find(self, login: str | None, passcode: str | None, place: str) -> Identity | None:
        if passcode is None:
            return None
        # Only where tokens are configured: a passcode may contain two dots as well.
        if self._keys and self._takes_for_token(passcode):
            return self._read_token(passcode)
        if login is None or not self._users:
            return None
        return await self._check_login(login, passcode, place)

    def _takes_for_token(self, passcode: str) -> bool:
        # Decided by its form alone, not by whether the login exists: the time it takes would reveal which
        # logins do.
        return passcode.count(".") == 2 and (not self._users or _has_token_header(passcode))

    # --- passcodes ---

    async def _check_login(self, login: str, passcode: str, place: str) -> Identity | None:
        key = self._digest(login, passcode)
        expected = self._users.get(login)
        # The remembered hash is compared with the current one, so that a reload invalidates entries without
        # a search.
        if expected is not None and self._good.get(key) == (login, expected):
            self._good.move_to_end(key)
            return Identity(login, Proof.PASSCODE, checked_by=expected)
        # Many connections of one program may reconnect at once: one check is enough. The expected hash is
        # part of the key, so that a result from before a reload does not count after it.
        is_good = await self._wait_for((key, expected), (expected, login, passcode, place))
        # A reload meanwhile may have taken the login away.
        if not is_good or expected is None or self._users.get(login) != expected:
            return None
        self._remember(key, login, expected)
        return Identity(login, Proof.PASSCODE, checked_by=expected)

    async def _wait_for(self, key: _Question, asked: tuple[str | None, str, str, str]) -> bool:
        """Whether the passcode is good.

        The check is cancelled when all who asked for it have gone: peers that connect and leave must not keep
        the line full.
        """
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = _Check()
            check.task = asyncio.get_running_loop().create_task(self._hash(check, *asked))
            # A callback: it removes the entry also if the task failed or all waiters were cancelled.
            check.task.add_done_callback(lambda _: self._forget(key, check))
        check.asking += 1
        try:
            # Shielded: one of several that ask may go away, and the others still want the result.
            return await asyncio.shield(check.task)
        finally:
            check.asking -= 1
            # A check that has begun is left to its end. Its thread cannot be stopped, and cancelling would
            # free its place in the rate limiter while the thread still takes 64 MiB and a core.
            if not (check.asking or check.has_begun):
                check.task.cancel()
                self._forget(key, check)

    def _forget(self, key: _Question, check: _Check) -> None:
        if self._checks.get(key) is check:
            del self._checks[key]

    async def _hash(self, check: _Check, expected: str | None, login: str, passcode: str, place: str) -> bool:
        # An unknown login costs as much time as a known one: the dummy is hashed, and matches no passcode.
        stored = self._dummy if expected is None else expected
        try:
            async with self._rate_limiter.take(place):
                # From here on the check is not cancelled any more; see `_wait_for`.
                check.has_begun = True
                is_good = await asyncio.to_thread(_is_hash_of, stored, passcode)
        except TooManyWaiting:
            self._log.warning(
                "passcode not checked", login=login[:MAX_LOGGED_CHARACTERS], reason="too many wait"
            )
            return False
        if not is_good or expected is None:
            self._log.info(
                "passcode refused", login=login[:MAX_LOGGED_CHARACTERS], is_known=expected is not None
            )
        return is_good

    def _digest(self, login: str, passcode: str) -> bytes:
        # The length keeps ("a", "bc") and ("ab", "c") apart.
        # `surrogatepass`: no text may make this fail, whatever the codec has let through.
        encoded = login.encode(errors="surrogatepass"), passcode.encode(errors="surrogatepass")
        return hmac.digest(self._secret, b"%d:%s%s" % (len(encoded[0]), *encoded), hashlib.sha256)

    def _remember(self, key: bytes, login: str, expected: str) -> None:
        self._good[key] = (login, expected)
        # Drops the entry that was used least recently: `_check_login` moves entries to the end when it uses
        # them.
        if len(self._good) > MAX_REMEMBERED_PASSCODES:
            self._good.popitem(last=False)

    # --- tokens ---

    def _read_token(self, token: str) -> Identity | None:
        # Checking a signature takes no longer than a TLS handshake does: no thread, no limit.
        try:
            key = self._key_of(token)
            claims = jwt.decode(
                token,
                key,
                # The key says which algorithm it is for. Taking the algorithm from the token's header would
                # let the sender choose, which is the classic attack on JWT.
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=TOKEN_LEEWAY_SECONDS,
                # Without `exp` a token would be valid for ever, and without `sub` it names no principal.
                options={"require": ["exp", "sub"]},
            )
        # A token's header may be JSON of any depth, and its `exp` an Infinity.
        except (jwt.PyJWTError, RecursionError, OverflowError) as error:
            self._log.info("token refused", reason=type(error).__name__)
            return None
        principal = str(claims["sub"])
        if fault := _fault_of(principal):
            self._log.warning(
                "token refused", reason=f"its sub {fault}", sub=principal[:MAX_LOGGED_CHARACTERS]
            )
            return None
        expires_at = min(int(claims["exp"]), _END_OF_TIME) + TOKEN_LEEWAY_SECONDS
        return Identity(principal, Proof.TOKEN, expires_at, _print_of(key))

    def _key_of(self, token: str) -> jwt.PyJWK:
        name = jwt.get_unverified_header(token).get("kid")
        # RFC 7515, 4.1.4: `kid` is optional. With several keys and no name any of them might be meant, and
        # trying all would make a refused token cost several signatures.
        if name is None and len(self._keys) == 1:
            return self._keys[0]
        found = next((key for key in self._keys if name is not None and key.key_id == name), None)
        if found is None:
            raise jwt.InvalidKeyError
        return found


def users_line(login: str, passcode: str) -> str:
    """A line of a users file, with the passcode as a fresh argon2 hash.

    Raises:
        SettingsError: the login is not allowed.
    """
    if fault := _fault_of(login):
        raise SettingsError(f"login {login!r} {fault}")
    # TOML's strings hold whatever JSON's do, printable characters as they are.
    return f'{json.dumps(login, ensure_ascii=False)} = "{argon2.PasswordHasher().hash(passcode)}"'


# By the digest of login and passcode, and the hash that they are checked against.
_Question: TypeAlias = tuple[bytes, str | None]


class _Check:
    """One passcode that is being checked, for all connections that wait for the result."""

    def __init__(self) -> None:
        self.task: asyncio.Task[bool]
        self.asking = 0
        self.has_begun = False


def _has_token_header(passcode: str) -> bool:
    """Whether a passcode begins as a JWT does: with a JSON object in Base64 (RFC 7515, 7.1)."""
    first = passcode.partition(".")[0].encode(errors="surrogatepass")
    try:
        head = jwt.utils.base64url_decode(first)
    except ValueError:
        return False
    return head.lstrip().startswith(b"{")


def _is_hash_of(expected: str, passcode: str) -> bool:
    try:
        return argon2.PasswordHasher().verify(expected, passcode)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


# --- files ---


class _UsersFile(Settings):
    """The table of a users file. Its keys are logins, so it is checked below, by hand."""

    users: Any = Field(default_factory=dict)


def _read_users(file: Path | None) -> Mapping[str, str]:
    if file is None:
        return {}
    users = load(_UsersFile, env_prefix="", file=file, environ={}).value.users
    if not isinstance(users, dict):
        raise SettingsError(f"{file}: [users]: is not a table")
    # Checked by hand, because a message must name the login and must not show its value.
    problems = [
        f"{file}: [users] {json.dumps(login, ensure_ascii=False)}: {fault}"
        for login, words in users.items()
        if (fault := _fault_of(login) or _fault_of_hash(words))
    ]
    if problems:
        raise SettingsError("\n".join(problems))
    return users


def _fault_of(principal: str) -> str | None:
    """Why a principal must not have this name: it looks like a name that others have, and rights are given to
    names."""
    if not principal or not principal.isprintable():
        return "is empty or holds a control character"
    if principal != principal.strip():
        # STOMP 1.0 and many programs strip white space, and would take it for another name.
        return "begins or ends with white space"
    # Rights are matched exactly, so the broker itself needs no folding. But people read names in logs and
    # files, where a login must not look like `anonymous` or `app:x`.
    bare = _bare(principal)
    # Anonymous peers pay as `anonymous@ADDRESS`.
    if bare == ANONYMOUS or bare.startswith((f"{ANONYMOUS}@", "app:")):
        is_given = principal == ANONYMOUS or principal.startswith("app:")
        return "is a name that the broker itself gives" if is_given else "looks like a name of the broker's"
    if _FINGERPRINT.fullmatch(bare):
        return "looks like the fingerprint of a certificate"
    return None


def _bare(name: str) -> str:
    """A name without its case, width, accents and white space."""
    # Twice: case folding may produce marks, and decomposing may produce capitals.
    for _ in range(2):
        name = unicodedata.normalize("NFKD", name).casefold()
    return "".join(
        character
        for character in name
        if not (unicodedata.category(character) in ("Mn", "Me", "Zs") or character in _INVISIBLE)
    )


def _fault_of_hash(words: Any) -> str | None:
    try:
        argon2.extract_parameters(words)
    except (argon2.exceptions.InvalidHashError, AttributeError):
        # The value may be a passcode, so it is not shown.
        return "the value is not an argon2 hash; `nebula passcode` makes one"
    return None


def _dummy_for(users: Mapping[str, str]) -> str:
    """A hash that costs as much as the users' hashes and matches no passcode."""

    def cost(words: str) -> int:
        parameters = argon2.extract_parameters(words)
        return parameters.memory_cost * parameters.time_cost

    if not users:
        return ""
    costliest = max(users.values(), key=cost)
    # As long as a real digest, so that hashing and comparing take as long too.
    length = argon2.extract_parameters(costliest).hash_len
    noise = base64.b64encode(secrets.token_bytes(length)).decode().rstrip("=")
    return f"{costliest.rpartition('$')[0]}${noise}"


def _read_keys(file: Path | None) -> tuple[jwt.PyJWK, ...]:
    if file is None:
        return ()
    try:
        entries = json.loads(file.read_bytes())["keys"]
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        entries = None
    if not isinstance(entries, list) or not entries:
        raise SettingsError(f'{file}: is not a JSON Web Key Set: {{"keys": [one or more]}}')
    return tuple(_read_key(f"{file}: key {number}", entry) for number, entry in enumerate(entries, 1))


def _print_of(key: jwt.PyJWK) -> str:
    """The fingerprint of a public key; other fields of its entry in the key set do not matter."""
    der = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _read_key(place: str, entry: Any) -> jwt.PyJWK:
    if not isinstance(entry, dict):
        raise SettingsError(f"{place}: is not an object")
    # `oct` keys are symmetric (HS256): a file with one would let every reader of it make tokens.
    if _PRIVATE_PARTS & entry.keys() or entry.get("kty") == "oct":
        raise SettingsError(f"{place}: is a secret key, which can sign tokens; put public keys here")
    try:
        key = jwt.PyJWK(entry)
    except jwt.PyJWTError:
        raise SettingsError(f"{place}: is of a kind that cannot be used, or broken") from None
    if key.algorithm_name not in _TOKEN_ALGORITHMS:
        raise SettingsError(f"{place}: algorithm {key.algorithm_name} does not prove who made a token")
    return key
