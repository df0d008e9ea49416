"""Files of capabilities: how they are merged, what is said of a wrong one, and that the page's is good."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.broker.core.access import AccessPolicy, Capability, Rights
from nebula.broker.server.rights_files import load_grants
from nebula.errors import SettingsError
from nebula.globs import MAX_GLOB_CHARACTERS, MAX_GLOB_STARS
from tests.docs_runner import read_page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rights.md"
FINGERPRINT = "6d1f2ac07b0f4c6a5f5d3e0e6c1b8a7990a1b2c3d4e5f60718293a4b5c6d7e8f"
WITH_COLONS = ":".join(FINGERPRINT[place : place + 2].upper() for place in range(0, 64, 2))
UNCLOSED = 'has a "[" without its "]": write "[[]" for the character itself'

# What somebody wrote, what we say, and what they write after reading it, which has to pass.
WRONG_FILES = [
    (
        "[capability.Read]\ncall = ['a[b']",
        f'[capability.Read] call 1: "a[b" {UNCLOSED}',
        "[capability.Read]\ncall = ['a[[]b']",
    ),
    (
        "[capability.Read]\nsubscribe = ['X/a', 'X/[{identity}]']",
        f'[capability.Read] subscribe 2: "X/[{{identity}}]" {UNCLOSED}',
        "[capability.Read]\nsubscribe = ['X/a', 'X/{identity}']",
    ),
    (
        "[capability.Read]\nsubscrib = ['X/a']",
        '[capability.Read]: unknown setting "subscrib"; did you mean "subscribe"?',
        "[capability.Read]\nsubscribe = ['X/a']",
    ),
    (
        "[capability.Read]\nxyz = ['X/a']",
        '[capability.Read]: unknown setting "xyz"; known are publish, subscribe, call',
        "[capability.Read]\ncall = ['schema.*']",
    ),
    (
        "[capability.Read]\npublish = 'X/a'",
        '[capability.Read] publish: "X/a" is not a list',
        "[capability.Read]\npublish = ['X/a']",
    ),
    (
        "[capability.Read]\npublish = [5]",
        "[capability.Read] publish 1: 5 is not a text in quotes",
        "[capability.Read]\npublish = ['5']",
    ),
    (
        "[capability.Read]\npublish = ['']",
        '[capability.Read] publish 1: "" is empty',
        "[capability.Read]\npublish = ['**']",
    ),
    (
        "[capability.Read]\npublish = []",
        "[capability.Read]: gives no right: publish, subscribe or call needs a glob",
        "[capability.Read]\npublish = ['X/a']",
    ),
    (
        "[capability.'Read it']",
        '[capability."Read it"]: gives no right: publish, subscribe or call needs a glob',
        "[capability.'Read it']\ncall = ['schema.register']",
    ),
    (
        "[capability]\nRead = ['X/a']",
        "[capability.Read]: (a list) is not a table",
        "[capability]\nRead = {subscribe = ['X/a']}",
    ),
    (
        "capability = 'Read'",
        '[capability]: "Read" is not a table',
        "[capability]",
    ),
    (
        "[capabilities.Read]\npublish = ['X/a']",
        'top level: unknown setting "capabilities"; did you mean "capability"?',
        "[capability.Read]\npublish = ['X/a']",
    ),
    (
        "[identity]\nalice = ['Raed']\n[capability.Read]\nsubscribe = ['X/a']",
        '[identity] "alice": no capability is called "Raed"; did you mean "Read"?',
        "[identity]\nalice = ['Read']\n[capability.Read]\nsubscribe = ['X/a']",
    ),
    (
        "[identity]\nalice = ['Read']",
        '[identity] "alice": no capability is called "Read"; no file defines any',
        "[identity]\nalice = []",
    ),
    (
        "[identity]\nalice = 'Read'\n[capability.Read]\nsubscribe = ['X/a']",
        '[identity] "alice": "Read" is not a list',
        "[identity]\nalice = ['Read']\n[capability.Read]\nsubscribe = ['X/a']",
    ),
    (
        f"[identity]\n'{WITH_COLONS}' = []",
        f'[identity] "{WITH_COLONS}": a fingerprint is written "{FINGERPRINT}"',
        f"[identity]\n'{FINGERPRINT}' = []",
    ),
    (
        "[identity\n",
        "not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 10)",
        "[identity]\n",
    ),
]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> Path:
    Path(name).write_text(text)
    return Path(name)


def complaints(*files: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_grants(files)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("wrong", "said", "right"), WRONG_FILES)
def test_wrong_file_is_told_where_and_what_and_its_cure_passes(wrong: str, said: str, right: str) -> None:
    assert complaints(write("rights.toml", wrong)) == [f"rights.toml: {said}"]

    load_grants([write("rights.toml", right)])


def test_all_mistakes_of_all_files_are_told_at_once() -> None:
    first = write("a.toml", "[capability.Read]\npublish = ['X/[', 5]\nsubscribe = 1\nextra = 2")
    second = write("b.toml", "[identity]\nalice = ['Write', 'Read']\nbob = [1]")
    missing = Path("none.toml")

    assert complaints(first, second, missing) == [
        'a.toml: [capability.Read]: unknown setting "extra"; known are publish, subscribe, call',
        f'a.toml: [capability.Read] publish 1: "X/[" {UNCLOSED}',
        "a.toml: [capability.Read] publish 2: 5 is not a text in quotes",
        "a.toml: [capability.Read] subscribe: 1 is not a list",
        'b.toml: [identity] "bob" 1: 1 is not a text in quotes',
        "none.toml: cannot be read: No such file or directory",
        'b.toml: [identity] "alice": no capability is called "Write"; known are Read',
    ]


def test_capability_in_two_files_is_refused_and_both_are_named() -> None:
    first = write("a.toml", "[capability.Read]\nsubscribe = ['X/a']")
    second = write("b.toml", "[capability.Read]\nsubscribe = ['X/b']")

    assert complaints(first, second) == [
        "b.toml: [capability.Read]: is in a.toml too: keep one of them, or rename one"
    ]


def test_identity_has_what_all_files_give_it() -> None:
    first = write("a.toml", "[capability.Read]\nsubscribe = ['X/a']\n[identity]\nalice = ['Read']")
    second = write(
        "b.toml",
        "[capability.Write]\npublish = ['X/a']\n[identity]\nalice = ['Write', 'Read']\nbob = ['Read']",
    )

    grants = load_grants([first, second])

    assert grants.capabilities == {
        "Read": Capability(subscribe=("X/a",)),
        "Write": Capability(publish=("X/a",)),
    }
    assert grants.identities == {"alice": ("Read", "Write"), "bob": ("Read",)}


def test_order_of_files_does_not_matter_to_who_finds_a_capability() -> None:
    names = write("a.toml", "[identity]\nalice = ['Read']")
    capabilities = write("b.toml", "[capability.Read]\nsubscribe = ['X/a']")

    assert load_grants([names, capabilities]).identities == {"alice": ("Read",)}


def test_file_without_anything_grants_nothing_rather_than_everything() -> None:
    rights = AccessPolicy(load_grants([write("rights.toml", "")])).rights_of("alice")

    assert not rights.is_open
    assert not rights.may_subscribe("/queue/a")


def test_environment_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY", '{"alice": ["Read"]}')
    monkeypatch.setenv("CAPABILITY", '{"Read": {"subscribe": ["**"]}}')

    assert load_grants([write("rights.toml", "")]).identities == {}


def test_file_on_the_page_does_what_the_page_says() -> None:
    policy = AccessPolicy(load_grants([write("rights.toml", read_page(PAGE).files["rights.toml"])]))
    dashboard = policy.rights_of(FINGERPRINT)
    venue = policy.rights_of("app:venue")
    operator = policy.rights_of("operator")

    assert dashboard.may_receive("X/EGM.Q.GM1.EGMStatus")
    assert not dashboard.may_publish("X/EGM.Q.GM1.EGMStatus")
    assert dashboard.may_publish("/queue/venue")
    assert venue.may_subscribe("/queue/venue")
    assert venue.may_publish("X/site.app:venue.status")
    assert operator.may_subscribe("/queue/DLQ")
    assert operator.may_call("schema.register")


def implied_rows() -> list[list[list[str]]]:
    """The cells of the page's table of what is implied, each as the names in it."""
    table = PAGE.read_text(encoding="utf-8").partition("## Implied rights")[2].partition("\n\n`S` is")[0]
    rows = [row.strip("| \n").split(" | ") for row in table.strip().splitlines()[2:]]
    return [[cell.split("`")[1::2] for cell in row] for row in rows]


def test_what_the_page_calls_implied_is_so() -> None:
    def rights_from(verb: str, destination: str) -> Rights:
        grant = f"[capability.One]\n{verb} = ['{destination}']\n[identity]\nalice = ['One']"
        return AccessPolicy(load_grants([write("rights.toml", grant)])).rights_of("alice")

    def named(cell: list[str]) -> list[str]:
        return [name.replace("S", "flights").replace("*", "i1") for name in cell]

    rows = implied_rows()
    assert [len(row) for row in rows] == [3, 3, 3]
    for verb, (_, publish, subscribe) in zip(("publish", "subscribe", "call"), rows, strict=True):
        rights = rights_from(verb, "/queue/flights")
        for name in named(publish):
            assert rights.may_publish(name), (verb, name)
        for name in named(subscribe):
            assert rights.may_subscribe(name), (verb, name)


def test_page_names_the_limits_of_globs() -> None:
    said = " ".join(PAGE.read_text(encoding="utf-8").split())

    assert f"It has at most {MAX_GLOB_CHARACTERS} characters and {MAX_GLOB_STARS} stars" in said
