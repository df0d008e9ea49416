"""The running broker of the tests in this folder."""

from tests.rpc.conftest import broker_url, client, mortal_broker, serving

__all__ = ["broker_url", "client", "mortal_broker", "serving"]
