"""The seam to where secrets are kept. A provider knows values by name and never writes one down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.errors import SecretMissing


class Secrets(Protocol):
    """Gives secret values by name, such as `bank/token`; called from any thread."""

    def get(self, name: str) -> str | None:
        """The value, or None where this provider does not have it. Read anew at each call, so that values can rotate.

        Raises SecretMissing, with the reason, for a name that cannot be asked for or a value that cannot be read.
        """
        ...

    def describe(self, name: str) -> str:
        """Where this provider looks for `name`, for the message of an error."""
        ...


class ChainSecrets:
    """The first of several providers that has the secret."""

    def __init__(self, providers: Sequence[Secrets]) -> None:
        self._providers = tuple(providers)

    def get(self, name: str) -> str | None:
        for provider in self._providers:
            value = provider.get(name)
            if value is not None:
                return value
        return None

    def describe(self, name: str) -> str:
        return ", ".join(provider.describe(name) for provider in self._providers) or "no provider"


def read_secret(secrets: Secrets, name: str) -> str:
    """The value of a secret that must be there; SecretMissing says where it was looked for."""
    value = secrets.get(name)
    if value is None:
        raise SecretMissing(name=name, tried=secrets.describe(name))
    return value
