"""Passwords in URLs: shown as ``***``, and never written anywhere."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"

_WITH_PASSWORD = re.compile(
    r"(?!sqlite[+:])(?P<user>[a-z][\w+.-]*:/+[^:/@?]*|[^:/@?]*(?=:[^/])):(?P<password>.+)@",
    re.DOTALL | re.IGNORECASE,
)
"""Up to the last ``@``: a password that holds one itself is hidden whole.

What begins with ``sqlite`` names a file, whose path may hold any character.
"""

_PARAMETER = re.compile(r"(?<=[?&;])(?P<name>[^=&;]+)=(?P<value>[^&;]+)")

_SECRET_NAME = re.compile("pass|pwd|secret|token|key|credential|auth", re.IGNORECASE)


def masked(url: str) -> str:
    """Return a URL with ``***`` for its password and for parameters whose names say secret."""
    if found := _WITH_PASSWORD.match(url):
        url = f"{found['user']}:{HIDDEN}@{url[found.end() :]}"
    return _PARAMETER.sub(
        lambda m: f"{m['name']}={HIDDEN}" if _SECRET_NAME.search(m["name"]) else m[0], url
    )


def is_masked(url: str) -> bool:
    """Return whether a URL is one of :func:`masked` that lacks something."""
    return f":{HIDDEN}@" in url or f"={HIDDEN}" in url


def without_secrets(text: str, url: str) -> str:
    """Return a text, such as another library's error, without the secrets of a URL."""
    text = text.replace(url, masked(url))
    secrets = [m["value"] for m in _PARAMETER.finditer(url) if _SECRET_NAME.search(m["name"])]
    if found := _WITH_PASSWORD.match(url):  # also up to its first "@"
        secrets += [found["password"], found["password"].partition("@")[0]]
    # the longest first: a secret may be part of another one
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        # drivers tell it as it stands in the URL, decoded, encoded again, or as Python writes texts
        for form in (secret, unquote(secret), unquote_plus(secret), quote(secret, safe=""),
                     quote_plus(unquote(secret)), repr(unquote(secret))[1:-1]):  # fmt: skip
            text = text.replace(form, HIDDEN)
    return text
