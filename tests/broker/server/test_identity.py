"""Who a peer is by its login and passcode, or by a token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from nebula.broker.server.authenticator import Authenticator
from nebula.broker.server.identity import ANONYMOUS_IDENTITY, Identity
from nebula.errors import SettingsError
from tests.own_logs import own_logs

pytestmark = pytest.mark.anyio

DEADLINE = 10.0

WIDE_APP = "".join(chr(ord(letter) + 0xFEE0) for letter in "app")

# As cheap as argon2 can be: how dear a hash is, is the operator's business.
HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def users_file(folder: Path, **passcodes: str) -> Path:
    file = folder / "users.toml"
    lines = [f'{login} = "{HASHER.hash(passcode)}"\n' for login, passcode in passcodes.items()]
    file.write_text("[users]\n" + "".join(lines))
    return file


async def principal_of(
    authenticator: Authenticator, login: str | None, passcode: str | None, place: str = ""
) -> str | None:
    identity = await authenticator.verify(login, passcode, place)
    return None if identity is None else identity.principal


# --- logins ---


async def test_login_with_its_passcode_is_the_principal(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret", bob="hidden"))

    assert await principal_of(authenticator, "alice", "secret") == "alice"
    assert await principal_of(authenticator, "bob", "hidden") == "bob"
    assert await principal_of(authenticator, "alice", "secret") == "alice"


@pytest.mark.parametrize(
    ("login", "passcode"),
    [
        ("alice", "wrong"),
        ("alice", "hidden"),
        ("alice", ""),
        ("alice", None),
        ("nobody", "secret"),
        ("", "secret"),
        (None, "secret"),
        (None, None),
        ("alices", "ecret"),
    ],
)
async def test_wrong_or_missing_login_is_refused_with_a_users_file(
    tmp_path: Path, login: str | None, passcode: str | None
) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret", bob="hidden"))
    # What was good before must not help anybody else.
    assert await principal_of(authenticator, "alice", "secret") == "alice"

    assert authenticator.admit_at_once(login) is None
    assert await principal_of(authenticator, login, passcode) is None


async def test_wrong_or_missing_login_is_anonymous_where_that_is_allowed(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"), anonymous=True)

    assert authenticator.admit_at_once(None) == ANONYMOUS_IDENTITY
    assert authenticator.admit_at_once("alice") is None
    assert await principal_of(authenticator, "alice", "wrong") == "anonymous"
    assert await principal_of(authenticator, "alice", "secret") == "alice"


def test_logins_are_ignored_where_all_may_be_anonymous_and_nobody_is_known() -> None:
    assert Authenticator(anonymous=True).admit_at_once("guest") == ANONYMOUS_IDENTITY


async def test_nobody_comes_in_where_nobody_is_known_and_nobody_may_be_anonymous() -> None:
    authenticator = Authenticator()

    assert authenticator.admit_at_once(None) is None
    assert authenticator.admit_at_once("guest") is None
    assert await principal_of(authenticator, "guest", "guest") is None
    assert await principal_of(authenticator, None, None) is None


async def test_reload_takes_up_new_users_and_forgets_those_who_are_gone(tmp_path: Path) -> None:
    file = users_file(tmp_path, alice="secret", bob="hidden")
    authenticator = Authenticator(users=file)
    assert await principal_of(authenticator, "alice", "secret") == "alice"
    assert await principal_of(authenticator, "bob", "hidden") == "bob"

    users_file(tmp_path, alice="changed", carol="new")
    authenticator.reload()

    assert await principal_of(authenticator, "alice", "secret") is None
    assert await principal_of(authenticator, "alice", "changed") == "alice"
    assert await principal_of(authenticator, "bob", "hidden") is None
    assert await principal_of(authenticator, "carol", "new") == "carol"


async def test_check_that_began_before_a_reload_does_not_count_for_who_asks_after_it(tmp_path: Path) -> None:
    file = users_file(tmp_path, alice="secret")
    authenticator = Authenticator(users=file)
    early = asyncio.create_task(principal_of(authenticator, "alice", "secret"))
    await asyncio.sleep(0)

    users_file(tmp_path, alice="changed")
    authenticator.reload()
    late = asyncio.create_task(principal_of(authenticator, "alice", "secret"))

    with anyio.fail_after(DEADLINE):
        assert (await early, await late) == (None, None)


async def test_reload_while_a_passcode_is_checked_counts_for_it(tmp_path: Path) -> None:
    file = users_file(tmp_path, alice="secret")
    authenticator = Authenticator(users=file)
    checking = asyncio.create_task(principal_of(authenticator, "alice", "secret"))
    await asyncio.sleep(0)

    users_file(tmp_path, bob="hidden")
    authenticator.reload()

    assert await checking is None


async def test_reload_of_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = users_file(tmp_path, alice="secret")
    authenticator = Authenticator(users=file)
    file.write_text("[users]\nalice = 'plain'\n")

    with pytest.raises(SettingsError):
        authenticator.reload()

    assert await principal_of(authenticator, "alice", "secret") == "alice"


# --- what a check costs ---


@pytest.fixture
def hashings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that passcodes are compared with, in order."""
    compared: list[str] = []
    verify = argon2.PasswordHasher.verify

    def count(self: argon2.PasswordHasher, expected: Any, passcode: Any) -> Any:
        compared.append(expected)
        return verify(self, expected, passcode)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", count)
    return compared


async def test_unknown_login_costs_the_same_as_a_wrong_passcode(tmp_path: Path, hashings: list[str]) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"))

    await principal_of(authenticator, "alice", "wrong")
    await principal_of(authenticator, "nobody", "wrong")

    known, unknown = hashings
    assert known != unknown
    assert argon2.extract_parameters(known) == argon2.extract_parameters(unknown)


async def test_who_comes_back_is_not_hashed_again(tmp_path: Path, hashings: list[str]) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"))

    for _ in range(50):
        assert await principal_of(authenticator, "alice", "secret") == "alice"

    assert len(hashings) == 1


async def test_many_who_come_at_once_with_one_passcode_are_hashed_once(
    tmp_path: Path, hashings: list[str]
) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"))

    found = await asyncio.gather(*(principal_of(authenticator, "alice", "secret") for _ in range(50)))

    assert found == ["alice"] * 50
    assert len(hashings) == 1


async def test_check_of_one_is_not_taken_for_that_of_another_whose_words_run_together_the_same(
    tmp_path: Path,
) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, ab="c", a="else"))

    right, wrong = await asyncio.gather(
        principal_of(authenticator, "ab", "c"), principal_of(authenticator, "a", "bc")
    )

    assert (right, wrong) == ("ab", None)


async def test_one_who_gives_up_does_not_take_the_check_from_the_others(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"))
    first = asyncio.create_task(principal_of(authenticator, "alice", "secret"))
    second = asyncio.create_task(principal_of(authenticator, "alice", "secret"))
    await asyncio.sleep(0)

    first.cancel()

    with anyio.fail_after(DEADLINE):
        assert await second == "alice"


async def test_checks_beyond_the_limit_wait_and_those_beyond_the_queue_are_refused(
    tmp_path: Path, hashings: list[str]
) -> None:
    # Ten seconds' worth may wait: two, of which one has its turn now.
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"), verifications_per_second=0.2)

    async with asyncio.TaskGroup() as tasks:
        guesses = [tasks.create_task(principal_of(authenticator, "alice", str(guess))) for guess in range(4)]
        with anyio.fail_after(DEADLINE):
            await asyncio.wait([guesses[0]])
            await asyncio.wait(guesses[2:])

        assert [guess.done() for guess in guesses] == [True, False, True, True]
        assert len(hashings) == 1
        guesses[1].cancel()


async def test_who_is_remembered_passes_by_the_queue(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"), verifications_per_second=0.1)
    assert await principal_of(authenticator, "alice", "secret") == "alice"

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(principal_of(authenticator, "alice", "guess"))
        await asyncio.sleep(0)
        with anyio.fail_after(DEADLINE):
            assert await principal_of(authenticator, "alice", "secret") == "alice"
        assert not waiting.done()
        waiting.cancel()


# --- mistakes in the users file ---


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("users = 1", "[users]: is not a table"),
        ("[user]", 'unknown setting "user"'),
        ("[users]\nalice = 'secret'", '[users] "alice": the value is not an argon2 hash; `nebula passcode`'),
        ("[users]\nalice = 1", '[users] "alice": the value is not an argon2 hash'),
        ("[users]\nanonymous = '{hash}'", '[users] "anonymous": is a name that the broker itself gives'),
        ("[users]\n'app:shop' = '{hash}'", '[users] "app:shop": is a name that the broker itself gives'),
        ("[users]\n'App:shop' = '{hash}'", '[users] "App:shop": looks like a name of the broker\'s'),
        ("[users]\n'{wide}:nebula' = '{hash}'", "looks like a name of the broker's"),
        ("[users]\n'ápp:nebula' = '{hash}'", "looks like a name of the broker's"),
        ("[users]\n'ANONYMOUS' = '{hash}'", "looks like a name of the broker's"),
        ("[users]\n'anonymous@192.0.2.1' = '{hash}'", "looks like a name of the broker's"),
        ("[users]\n' app:nebula' = '{hash}'", '[users] " app:nebula": begins or ends with white space'),
        ("[users]\n'alice ' = '{hash}'", '[users] "alice ": begins or ends with white space'),
        ("[users]\n{fingerprint} = '{hash}'", "looks like the fingerprint of a certificate"),
        ("[users]\n'' = '{hash}'", '[users] "": is empty or holds a control character'),
        ("[users]\n\"a\\nb\" = '{hash}'", "is empty or holds a control character"),
        ("[users", "not valid TOML"),
    ],
)
def test_mistake_in_the_users_file_is_told_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "users.toml"
    text = text.replace("{wide}", WIDE_APP)
    file.write_text(text.replace("{hash}", HASHER.hash("x")).replace("{fingerprint}", "0aF" + "1" * 61))

    with pytest.raises(SettingsError) as caught:
        Authenticator(users=file)

    assert str(caught.value).startswith(f"{file}: ")
    assert complaint in str(caught.value)
    assert "secret" not in str(caught.value)


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"users\.toml: cannot be read: No such file"):
        Authenticator(users=tmp_path / "users.toml")
    with pytest.raises(SettingsError, match=r"keys\.json: cannot be read: No such file"):
        Authenticator(jwks=tmp_path / "keys.json")


def test_limit_of_nothing_per_second_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match="verifications_per_second 0 is not above 0"):
        Authenticator(verifications_per_second=0)


# --- tokens ---

EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, **members: str) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name("ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256")
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **members}


def keys_file(folder: Path, *keys: dict[str, Any]) -> Path:
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": keys}))
    return file


def claims(**changes: Any) -> dict[str, Any]:
    all_claims = {"sub": "till-1", "exp": time.time() + 60} | changes
    return {name: value for name, value in all_claims.items() if value is not None}


def token(key: Any = EC_KEY, algorithm: str = "ES256", kid: str | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers=None if kid is None else {"kid": kid})


async def test_sub_of_a_good_token_is_the_principal_whatever_the_login(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))

    assert await principal_of(authenticator, "somebody", token()) == "till-1"
    assert await principal_of(authenticator, None, token()) == "till-1"


async def test_key_is_chosen_by_its_name(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY, kid="a"), public(RSA_KEY, kid="b")))

    assert await principal_of(authenticator, None, token(kid="a")) == "till-1"
    assert await principal_of(authenticator, None, token(RSA_KEY, "RS256", kid="b")) == "till-1"
    assert await principal_of(authenticator, None, token(kid="b")) is None
    assert await principal_of(authenticator, None, token(kid="c")) is None
    assert await principal_of(authenticator, None, token()) is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: token(exp=time.time() - 60), id="expired"),
        pytest.param(lambda: token(exp=None), id="never expires"),
        pytest.param(lambda: token(exp=float("inf")), id="expires at infinity"),
        pytest.param(lambda: token(nbf=time.time() + 60), id="not valid yet"),
        pytest.param(lambda: token(sub=None), id="of nobody"),
        pytest.param(lambda: token(sub=""), id="of nobody by name"),
        pytest.param(lambda: token(sub="app:shop"), id="of a hosted service"),
        pytest.param(lambda: token(sub="anonymous"), id="of anonymous"),
        pytest.param(lambda: token(sub="anonymous@192.0.2.1"), id="of anonymous peers of an address"),
        pytest.param(lambda: token(sub="0a" * 32), id="of a fingerprint"),
        pytest.param(lambda: token(sub="till\n1"), id="of a name with a newline"),
        pytest.param(lambda: token(sub=" app:nebula"), id="of a name with a space before it"),
        pytest.param(lambda: token(sub="till-1 "), id="of a name with a space behind it"),
        pytest.param(lambda: token(sub="\u3000app:nebula"), id="of a name with a wide space before it"),
        pytest.param(lambda: token(sub="\u3164app:nebula"), id="of a name with an invisible letter"),
        pytest.param(lambda: token(sub="app\ufe0f:nebula"), id="of a name with an invisible mark"),
        pytest.param(lambda: token(sub="ap p:nebula"), id="of a name with a space within it"),
        pytest.param(lambda: token(sub="APP:nebula"), id="of a name in capitals"),
        pytest.param(lambda: token(sub=f"{WIDE_APP}:nebula"), id="of a name in wide letters"),
        pytest.param(lambda: token(sub="Anonymous"), id="of Anonymous"),
        pytest.param(lambda: token(aud="elsewhere"), id="for another audience"),
        pytest.param(lambda: token(ec.generate_private_key(ec.SECP256R1())), id="of another key"),
        pytest.param(lambda: token(RSA_KEY, "RS256"), id="of another algorithm"),
        pytest.param(lambda: jwt.encode(claims(), "", "none"), id="not signed"),
        pytest.param(lambda: jwt.encode(claims(), "s" * 32, "HS256"), id="symmetric"),
        pytest.param(lambda: token()[:-6] + "AAAAAA", id="changed"),
        pytest.param(lambda: "a.b.c", id="nonsense"),
        pytest.param(lambda: "..", id="empty"),
        pytest.param(lambda: "ä.ö.ü", id="not ASCII"),
    ],
)
async def test_token_that_is_not_good_is_refused(tmp_path: Path, make: Callable[[], str]) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))

    assert await principal_of(authenticator, None, make()) is None


async def test_header_of_endless_depth_is_refused_as_any_other_nonsense(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))
    deep = jwt.utils.base64url_encode(b'{"a":' * 100_000).decode()

    assert await principal_of(authenticator, None, f"{deep}.e30.AAAA") is None


async def test_public_key_does_not_serve_as_a_shared_secret(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = EC_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body = (
        jwt.utils.base64url_encode(json.dumps(part).encode()).decode()
        for part in ({"alg": "HS256", "typ": "JWT"}, claims())
    )
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{body}".encode(), pem)
    forged = f"{head}.{body}.{jwt.utils.base64url_encode(signature).decode()}"
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))

    assert await principal_of(authenticator, None, forged) is None


async def test_audience_and_issuer_have_to_be_ours_where_they_are_set(tmp_path: Path) -> None:
    authenticator = Authenticator(
        jwks=keys_file(tmp_path, public(EC_KEY)), audience="broker", issuer="https://id.example"
    )

    assert await principal_of(authenticator, None, token(aud="broker", iss="https://id.example")) == "till-1"
    assert await principal_of(authenticator, None, token(aud="other", iss="https://id.example")) is None
    assert await principal_of(authenticator, None, token(aud="broker", iss="https://else.example")) is None
    assert await principal_of(authenticator, None, token()) is None


async def test_passcode_that_is_no_token_is_checked_against_the_users(tmp_path: Path) -> None:
    authenticator = Authenticator(
        users=users_file(tmp_path, alice="one.dot"), jwks=keys_file(tmp_path, public(EC_KEY))
    )

    assert await principal_of(authenticator, "alice", "one.dot") == "alice"
    assert await principal_of(authenticator, "alice", token()) == "till-1"


@pytest.mark.parametrize("passcode", ["a.b.c", "..", "correct.horse.battery", "{.}.", "ä.ö.ü"])
async def test_passcode_with_two_dots_logs_in_beside_tokens(tmp_path: Path, passcode: str) -> None:
    authenticator = Authenticator(
        users=users_file(tmp_path, alice=passcode), jwks=keys_file(tmp_path, public(EC_KEY))
    )

    assert await principal_of(authenticator, "alice", passcode) == "alice"
    assert await principal_of(authenticator, "alice", f"{passcode}.") is None
    assert await principal_of(authenticator, "alice", token()) == "till-1"


async def test_dotted_guess_costs_the_same_for_a_known_and_an_unknown_login(
    tmp_path: Path, hashings: list[str]
) -> None:
    authenticator = Authenticator(
        users=users_file(tmp_path, alice="secret"), jwks=keys_file(tmp_path, public(EC_KEY))
    )

    for guess in ("a.b.c", token()[:-6] + "AAAAAA"):
        for login in ("alice", "nobody"):
            assert await principal_of(authenticator, login, guess) is None

    assert len(hashings) == 2


async def test_reload_takes_up_new_keys(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))
    assert await principal_of(authenticator, None, token()) == "till-1"

    keys_file(tmp_path, public(RSA_KEY))
    authenticator.reload()

    assert await principal_of(authenticator, None, token()) is None
    assert await principal_of(authenticator, None, token(RSA_KEY, "RS256")) == "till-1"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not a JSON Web Key Set"),
        ("[]", "is not a JSON Web Key Set"),
        ('{"keys": []}', "is not a JSON Web Key Set"),
        ('{"keys": [1]}', "key 1: is not an object"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "key 1: is a secret key"),
        ('{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}', "key 1: is of a kind"),
        ('{"keys": [{"kty": "XX"}]}', "key 1: is of a kind"),
    ],
)
def test_mistake_in_the_key_set_is_told_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)

    with pytest.raises(SettingsError) as caught:
        Authenticator(jwks=file)

    assert str(caught.value).startswith(f"{file}: {complaint}")


def test_private_key_in_the_key_set_is_a_mistake(tmp_path: Path) -> None:
    private = jwt.get_algorithm_by_name("ES256").to_jwk(EC_KEY, as_dict=True)

    with pytest.raises(SettingsError, match="key 1: is a secret key, which can sign tokens"):
        Authenticator(jwks=keys_file(tmp_path, private))


# --- who may stay ---


async def admitted(authenticator: Authenticator, login: str | None, passcode: str) -> Identity:
    identity = await authenticator.verify(login, passcode)
    assert identity is not None
    return identity


async def test_user_is_known_until_a_reload_without_its_line_as_it_was(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret", bob="hidden", carol="word"))
    alice = await admitted(authenticator, "alice", "secret")
    # Again, by what is remembered.
    assert await admitted(authenticator, "alice", "secret") == alice
    bob = await admitted(authenticator, "bob", "hidden")
    carol = await admitted(authenticator, "carol", "word")
    as_before = (tmp_path / "users.toml").read_text().splitlines()
    assert all(map(authenticator.still_knows, (alice, bob, carol)))

    users_file(tmp_path, bob="changed")
    changed = (tmp_path / "users.toml").read_text()
    (tmp_path / "users.toml").write_text(f"{changed}{as_before[3]}\n")
    authenticator.reload()

    assert [authenticator.still_knows(each) for each in (alice, bob, carol)] == [False, False, True]


async def test_token_is_known_until_a_reload_without_its_key(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY, kid="a"), public(RSA_KEY, kid="b")))
    first = await admitted(authenticator, None, token(kid="a"))
    second = await admitted(authenticator, None, token(RSA_KEY, "RS256", kid="b"))

    # What else is said of a key does not matter.
    keys_file(tmp_path, public(RSA_KEY, kid="c", use="sig"))
    authenticator.reload()

    assert [authenticator.still_knows(each) for each in (first, second)] == [False, True]


async def test_token_expires_when_it_says_and_the_clocks_may_differ(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))
    exp = int(time.time()) + 60

    assert (await admitted(authenticator, None, token(exp=exp))).expires_at == exp + 10
    assert (await admitted(authenticator, None, token(exp=10**400))).expires_at > exp


async def test_hash_is_shown_by_no_repr(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"))

    assert "argon2" not in repr(await admitted(authenticator, "alice", "secret"))


# --- the log ---


async def test_log_says_why_and_never_a_passcode_or_token(tmp_path: Path) -> None:
    authenticator = Authenticator(
        users=users_file(tmp_path, alice="secret"), jwks=keys_file(tmp_path, public(EC_KEY))
    )
    expired = token(exp=time.time() - timedelta(hours=1).total_seconds())

    with own_logs() as logged:
        await principal_of(authenticator, "alice", "hunter2")
        await principal_of(authenticator, "alice", expired)

    assert [(entry["event"], entry.get("login"), entry.get("reason")) for entry in logged] == [
        ("passcode refused", "alice", None),
        ("token refused", None, "ExpiredSignatureError"),
    ]
    assert "hunter2" not in str(logged)
    assert expired not in str(logged)


async def test_flood_of_bad_tokens_does_not_flood_the_log(tmp_path: Path) -> None:
    authenticator = Authenticator(jwks=keys_file(tmp_path, public(EC_KEY)))

    with own_logs() as logged:
        for _ in range(200):
            assert await principal_of(authenticator, None, "a.b.c") is None

    # How long it takes is not ours to say: a second or two.
    assert 5 <= len(logged) < 50


async def test_login_without_end_is_cut_in_the_log(tmp_path: Path) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"))

    with own_logs() as logged:
        await principal_of(authenticator, "m" * 5_000, "guess")

    assert [len(entry["login"]) for entry in logged] == [200]


# --- who waits to be verified ---


async def test_who_comes_and_goes_does_not_keep_the_line_full(tmp_path: Path, hashings: list[str]) -> None:
    # Ten may wait.
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"), verifications_per_second=1.0)
    for number in range(50):
        guess = asyncio.create_task(principal_of(authenticator, "alice", str(number), "a"))
        await asyncio.sleep(0)
        guess.cancel()
        await asyncio.wait([guess])

    with anyio.fail_after(DEADLINE):
        assert await principal_of(authenticator, "alice", "secret", "b") == "alice"
    assert len(hashings) == 1


async def test_guesses_of_one_place_do_not_keep_another_ones_peers_out(
    tmp_path: Path, hashings: list[str]
) -> None:
    authenticator = Authenticator(users=users_file(tmp_path, alice="secret"), verifications_per_second=1.0)
    began = time.monotonic()
    guesses = [
        asyncio.create_task(principal_of(authenticator, "alice", str(each), "a")) for each in range(30)
    ]
    await asyncio.sleep(0)

    with anyio.fail_after(DEADLINE):
        assert await principal_of(authenticator, "alice", "secret", "b") == "alice"
    # One at once, and theirs as the next one; a busy machine may see it later, after as many more as seconds.
    assert len(hashings) <= 1 + (time.monotonic() - began)
    for guess in guesses:
        guess.cancel()
