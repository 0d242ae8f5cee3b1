"""Where a database is, as it may be shown: without the passwords that its URL can hold, whatever form it has."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_HIDDEN = "***"
_SECRETS = frozenset(("password", "sslpassword", "oauth_client_secret"))
# What is no URL, or none that can be read: rather too much is hidden than too little.
_USERINFO = re.compile(r"(^[a-z][a-z0-9+.-]*:|://)([^:@/?#\s]*):[^\s]*@", re.I)
_ENCODED = re.compile(r"(%3A%2F%2F(?:(?!%3A|%40|&).)*)%3A[^&\s]*%40", re.I)
_OPTION = re.compile(r"((?:password|secret)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.I)


def without_password(url: str) -> str:
    """The URL with `***` for each password, or without it; what has none comes back as it is."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return _roughly(url)
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        return _roughly(url)
    user, at, host = parts.netloc.rpartition("@")
    if "@" in parts.path or "@" in parts.fragment:
        # A password with a slash or a hash in it, which nobody has encoded.
        return _roughly(url)
    shown = [(key, _of_option(key, value)) for key, value in query]
    return urlunsplit(
        parts._replace(netloc=user.partition(":")[0] + at + host, query=urlencode(shown, quote_via=quote))
    )  # fmt: skip


def _of_option(key: str, value: str) -> str:
    return _HIDDEN if key in _SECRETS else without_password(value) if key == "listen_url" else value


def _roughly(url: str) -> str:
    url = _ENCODED.sub(rf"\1%3A{_HIDDEN}%40", url)
    return _OPTION.sub(rf"\1{_HIDDEN}", _USERINFO.sub(rf"\1\2:{_HIDDEN}@", url))
