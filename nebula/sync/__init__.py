"""The client without `await`, for scripts and notebooks.

The same calls with the same contracts as `nebula.rpc.client.client.Client`. Each waits until it is done. The
loop that does the work runs on a thread of its own; `stomp` and `link`, which belong to that thread, are not
available.
"""

from nebula.sync.client import Client
from nebula.sync.discovery import Presence
from nebula.sync.jobs import JobHandle
from nebula.sync.messages import LastValue, Subscription

__all__ = ["Client", "JobHandle", "LastValue", "Presence", "Subscription"]
