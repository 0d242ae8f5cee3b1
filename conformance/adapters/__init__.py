"""Engines, each used as its own documentation says to."""
