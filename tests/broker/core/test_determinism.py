"""The same inputs with the same times give the same octets."""

from __future__ import annotations

import random
import subprocess
import sys

from nebula.broker.core.limits import Limits
from tests.broker.harness import BrokerHarness


def record(seed: int) -> list[bytes]:
    """Everything that six peers are told in a session that chance makes up."""
    chance = random.Random(seed)
    broker = BrokerHarness(Limits(max_queue_messages=20, outbox_high_water_bytes=1000))
    everybody = [broker.connect(chance.choice(["1.0", "1.1", "1.2"]), heart_beat="1000,0") for _ in range(6)]
    peers = list(everybody)
    for _ in range(400):
        peer = chance.choice(peers)
        where = f"{chance.choice(['/queue', '/topic'])}/{chance.randrange(3)}"
        match chance.randrange(6):
            case 0 if len(peer.session.subscriptions) < 4:
                ack = chance.choice(["auto", "client", "client-individual"])
                id_ = str(len(peer.session.subscriptions))
                if id_ not in peer.session.subscriptions:
                    peer.subscribe(where, f"ack:{ack}", "prefetch-count:3", id=id_)
            case 1 | 2:
                peer.publish(where, *"abc", headers=["receipt:r", f"neb-timeout:{chance.randrange(1, 4000)}"])
            case 3 | 4:
                for frame in peer.received():
                    if frame[0] == "MESSAGE":
                        chance.choice([peer.ack, peer.ack, peer.nack])(frame)
            case _:
                broker.advance(chance.random())
                peer.feed(b"\n")
        peers = [each for each in peers if not each.is_closed] or [broker.connect()]
    return [peer.octets for peer in everybody]


def test_two_runs_of_one_input_give_identical_octets() -> None:
    first = record(1)

    assert first == record(1)
    assert first != record(2)
    assert sum(map(len, first)) > 20_000


def test_no_order_hangs_on_the_hashes_of_a_process() -> None:
    program = "import tests.broker.core.test_determinism as it; print(hash_of(it.record(3)))"
    program = f"import hashlib\nhash_of = lambda all: hashlib.sha256(b''.join(all)).hexdigest()\n{program}"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert [len(output) for output in outputs] == [65]
