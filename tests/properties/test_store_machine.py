"""Random histories of a broker with a store, with crashes and restarts, against a model."""

from __future__ import annotations

import pytest

from tests.depth import SECONDS, machine_settings
from tests.properties.store_machine import StoreMachine

TestStore = pytest.mark.deep(pytest.mark.timeout(SECONDS)(StoreMachine.TestCase))
TestStore.settings = machine_settings(25, 50)
