"""Routes: where notifications go, and which of them. Pure, and the same whether written in code or in a setting."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlsplit

from outlive.model.errors import SettingInvalid
from outlive.model.notice import NOTICE_KINDS

_FIELDS = {"url": str, "secret": str, "command": list, "kinds": list, "roles": list}
TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Route:
    """Where notifications go: to a webhook, signed with the secret that `secret` names, or into a command's stdin.

    `kinds` and `roles` say which ones; empty: all. A notification that is for no role in particular passes every
    `roles`. The name is what deliveries are recorded under: a route that is renamed is a new one. `timeout` is for one
    delivery.
    """

    name: str
    url: str = ""
    secret: str = ""
    command: Sequence[str] = ()
    kinds: Sequence[str] = ()
    roles: Sequence[str] = ()
    timeout: timedelta = TIMEOUT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}", self.name):
            raise self._wrong("a name has 1 to 50 letters, digits and _ . -")
        if bool(self.url) == bool(self.command):
            raise self._wrong("say url or command, one of them")
        if self.url:
            self._check_url()
        lists: tuple[object, ...] = (self.command, self.kinds, self.roles)
        if any(isinstance(one, str) for one in lists) or not all(
            map(_is_text, (*self.command, *self.kinds, *self.roles))
        ):
            raise self._wrong("command, kinds and roles are lists of texts that are not empty")
        if self.command and self.secret:
            raise self._wrong("a secret signs what goes to a url; a command has its own ways")
        if unknown := [kind for kind in self.kinds if kind not in NOTICE_KINDS]:
            raise self._wrong(f"there is no kind {unknown[0]!r}; known are {', '.join(NOTICE_KINDS)}")
        if self.timeout <= timedelta(0):
            raise self._wrong("a time-out is more than nothing")

    def takes(self, kind: str, role: str) -> bool:
        """Whether a notification of this kind, for this role, goes this way."""
        return (not self.kinds or kind in self.kinds) and (not self.roles or not role or role in self.roles)

    @property
    def place(self) -> str:
        """Where it leads, for people: what in a URL may be secret is left out."""
        if self.command:
            return f"command {self.command[0]}"
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            raise self._wrong("its url cannot be read") from None
        if not usable or not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            raise self._wrong("say http://host/path or https://host/path, in ASCII")
        if parts.username is not None or parts.fragment:
            raise self._wrong("a url has no user and no #; what is signed needs no password")

    def _wrong(self, why: str) -> SettingInvalid:
        return SettingInvalid(name="notify", value=self.name, source="route", why=why)


def _is_text(one: object) -> bool:
    return isinstance(one, str) and bool(one) and "\0" not in one


@dataclass(frozen=True, slots=True)
class Routes:
    """All of them; no two of one name."""

    every: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        names = [one.name for one in self.every]
        for name in names:
            if names.count(name) > 1:
                raise SettingInvalid(name="notify", value=name, source="route", why="two routes have this name")

    def __str__(self) -> str:
        return ", ".join(f"{one.name} ({one.place})" for one in self.every) or "nobody"


def parse_routes(text: str) -> Routes:
    """`{"ops": {"url": "https://…", "secret": "notify/ops"}, "mail": {"command": ["mail-ops"]}}`. Raises ValueError."""
    if not text.strip():
        return Routes()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError('say {"name": {"url": "https://…", "secret": "…"}} or {"name": {"command": ["…"]}}')
    try:
        return Routes(tuple(_route(name, given) for name, given in found.items()))
    except SettingInvalid as error:
        raise ValueError(f"route {error.value!r}: {error.why}") from None


def _route(name: str, given: object) -> Route:
    if not isinstance(given, dict):
        raise ValueError(f"route {name!r}: say an object with url or command")
    for key, value in given.items():
        if key not in _FIELDS:
            raise ValueError(f"route {name!r}: there is no {key!r}; known are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]):
            raise ValueError(f"route {name!r}: {key} is a {'text' if _FIELDS[key] is str else 'list of texts'}")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Route(name, **cast("dict[str, Any]", fields))
