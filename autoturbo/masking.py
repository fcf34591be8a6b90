"""Passwords in URLs: shown as ``***``, and never written anywhere."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"

_WITH_PASSWORD = re.compile(
    r"(?P<user>[A-Za-z][\w+.-]*:/+[^:/@?]*|[^:/@?]*(?=:[^/])):(?P<password>.+)@", re.DOTALL
)
"""Up to the last ``@``: a password that holds one itself is hidden whole."""

_PARAMETER = re.compile(r"(?<=[?&;])(?P<name>[^=&;]+)=(?P<value>[^&;]+)")
_SECRET_NAME = re.compile("pass|pwd|secret|token|key|credential|auth", re.IGNORECASE)
_LOCAL = re.compile("sqlite[+:]", re.IGNORECASE)
"""What begins so names a file, whose path may hold any character."""


def masked(url: str) -> str:
    """Return a URL with ``***`` for its password and for parameters whose names say secret."""
    found = None if _LOCAL.match(url) else _WITH_PASSWORD.match(url)
    if found:
        url = f"{found['user']}:{HIDDEN}@{url[found.end() :]}"
    return _PARAMETER.sub(_masked_parameter, url)


def is_masked(url: str) -> bool:
    """Return whether a URL is one of :func:`masked` that lacks something."""
    return f":{HIDDEN}@" in url or f"={HIDDEN}" in url


def without_secrets(text: str, url: str) -> str:
    """Return a text, such as another library's error, without the secrets of a URL."""
    text = text.replace(url, masked(url))
    for secret in _secrets(url):
        for form in (secret, unquote(secret), unquote_plus(secret), quote(secret, safe=""),
                     quote_plus(unquote(secret)), repr(unquote(secret))[1:-1]):  # fmt: skip
            text = text.replace(form, HIDDEN)
    return text


def _secrets(url: str) -> list[str]:
    """What is hidden of a URL, the longest first; also a password up to its first ``@``."""
    secrets = [m["value"] for m in _PARAMETER.finditer(url) if _SECRET_NAME.search(m["name"])]
    found = None if _LOCAL.match(url) else _WITH_PASSWORD.match(url)
    if found:
        secrets += [found["password"], found["password"].partition("@")[0]]
    return sorted(filter(None, secrets), key=len, reverse=True)


def _masked_parameter(found: re.Match[str]) -> str:
    secret = _SECRET_NAME.search(found["name"])
    return f"{found['name']}={HIDDEN}" if secret else found[0]
