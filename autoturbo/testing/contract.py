"""How a contract is found broken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

_Case = TypeVar("_Case")


class ContractError(AssertionError):
    """What was tested does not do what its contract says."""


def check_all(checks: Iterable[Callable[[_Case], None]], case: _Case) -> None:
    """Make every check of a case.

    Raises:
        ContractError: of the first check that fails.
    """
    for check in checks:
        check(case)


def within(seconds: float, what: str, work: Callable[[], None]) -> None:
    """Do something, or say that it takes too long; it is then left to itself.

    Raises:
        ContractError: it takes longer, breaks the contract, or raises anything at all.
    """
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  told to whoever waits
            raised.append(error)

    thread = threading.Thread(target=guarded, name=what, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise ContractError(f"{what}: no end after {seconds:g} s")
    for error in raised:
        if isinstance(error, ContractError):
            raise ContractError(f"{what}: {error}") from error
        raise ContractError(f"{what}: raised {type(error).__name__}: {error}") from error
