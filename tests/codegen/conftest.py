"""The running broker that generated code is tried on."""

from tests.rpc.conftest import broker_url, client, mortal_broker, serving

__all__ = ["broker_url", "client", "mortal_broker", "serving"]
