"""What CONNECTED calls a session that its client did not name (D.18)."""

from __future__ import annotations

import re

from tests.faults.served import Wire, serve


def test_session_that_nobody_named_has_a_fresh_name_fit_for_ids() -> None:
    with serve() as broker:
        names = {Wire(broker.port).connect("1.2")[1]["session"] for _ in range(3)}

    assert len(names) == 3
    assert all(re.fullmatch(r"[^\\: ]{16,}", name) for name in names)
