"""Tests of the readers behind `ctx.read`."""
