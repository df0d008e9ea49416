"""Who is there: instances of services make themselves known, and clients find them and ask them all.

Where the broker keeps last values each instance has one, `X/nebula.services.<service>.<instance>`, which goes
with its connection; elsewhere instances answer who asks on `/topic/nebula.services`.
"""

from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Change, Presence
from nebula.rpc.discovery.scatter import InstanceAnswer, Scatter, ScatterResult

__all__ = ["Change", "Instance", "InstanceAnswer", "Presence", "Scatter", "ScatterResult"]
