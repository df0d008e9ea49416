"""The broker, driven frame by frame through a harness, without sockets unless a listener is the subject."""
