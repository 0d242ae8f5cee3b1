"""Secrets from environment variables: `bank/token` is OUTLIVE_SECRET_BANK_TOKEN."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping


class EnvironmentSecrets:
    """Reads the environment at each call. Names that differ only in case or punctuation share a variable."""

    def __init__(self, prefix: str = "OUTLIVE_SECRET_", *, environ: Mapping[str, str] | None = None) -> None:
        self._prefix = prefix
        self._environ = os.environ if environ is None else environ

    def get(self, name: str) -> str | None:
        return self._environ.get(self._variable(name))

    def names(self) -> list[str]:
        """The variables of the prefix, as the names that would be read from them; punctuation is not known."""
        return [key[len(self._prefix) :].lower() for key in sorted(self._environ) if key.startswith(self._prefix)]

    def describe(self, name: str) -> str:
        return f"the environment variable {self._variable(name)}"

    def _variable(self, name: str) -> str:
        return self._prefix + re.sub(r"[^A-Z0-9]", "_", name.upper())
