"""The type of a function that a user hands us: anything can be its parameters, nothing is assumed of its result."""

from __future__ import annotations

from collections.abc import Callable

UserFunction = Callable[..., object]
