"""The seam to where secrets are kept. A provider knows values by name and never writes one down."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from outlive.model.errors import SecretMissing, SettingInvalid
from outlive.secret.scrubber import Scrubber

log = logging.getLogger("outlive.worker")


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

    def names(self) -> list[str]:
        """Names that can be listed without asking for them; a provider that cannot list gives none."""
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

    def names(self) -> list[str]:
        return [name for provider in self._providers for name in provider.names()]

    def describe(self, name: str) -> str:
        return ", ".join(provider.describe(name) for provider in self._providers) or "no provider"


def read_secret(secrets: Secrets, name: str) -> str:
    """The value of a secret that must be there; SecretMissing says where it was looked for."""
    value = secrets.get(name)
    if value is None:
        raise SecretMissing(name=name, tried=secrets.describe(name))
    return value


def register_all(secrets: Secrets, scrubber: Scrubber) -> None:
    """Make every secret that can be listed known to the scrubber.

    A worker that learns by a look-up what another worker's tool was answered has not read the secret itself.
    """
    for name in secrets.names():
        try:
            value = secrets.get(name)
            if value is not None:
                scrubber.register(name, value)
        except (SecretMissing, SettingInvalid) as error:
            log.warning("secret %s cannot be scrubbed: %s", name, error)
