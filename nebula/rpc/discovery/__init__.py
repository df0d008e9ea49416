"""Discovery: instances of services register, and clients find them and call them all.

There is no registry service. Where the broker keeps last values, each instance puts one at
`X/nebula.services.<service>.<instance>`. It is ephemeral, so the broker deletes it when the connection
ends, however that happens: presence needs no heartbeat and no timeout of its own. Clients read a glob of
such values, and subscribe to follow changes. What the value says (version, load, queue) is the instance's
own word; rights decide which principals may write it.

Other brokers have no last values. There a client asks on `/topic/nebula.services`, and the instances that
reply within a second are there; changes are seen by asking again. A crashed instance then stays listed
until the next question.

Presence says which instances are registered, not which will reply: a call still ends by its own deadline.
"""

from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Change, Presence
from nebula.rpc.discovery.scatter import InstanceReply, Scatter, ScatterResult

__all__ = ["Change", "Instance", "InstanceReply", "Presence", "Scatter", "ScatterResult"]
