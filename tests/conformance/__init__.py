"""Transcripts of STOMP sessions, played against every way to reach a broker."""
