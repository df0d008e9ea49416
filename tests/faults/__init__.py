"""The broker over real sockets with peers, disks and clocks that misbehave."""
