"""Checks of a running set-up: pure judgements of facts, and the questions that gather the facts."""
