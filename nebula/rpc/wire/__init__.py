"""The Nebulous Protocol on the wire: envelopes, replies, headers of the broker brands. Pure."""
