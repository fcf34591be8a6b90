"""How a contract is found broken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Protocol, TypeVar


class Case(Protocol):
    """What is tested."""

    @property
    def deadline_s(self) -> float:
        """Seconds after which a check is said never to end."""


_Case = TypeVar("_Case", bound=Case)


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


def bounded(what: str) -> Callable[[Callable[[_Case], None]], Callable[[_Case], None]]:
    """Make a check that says what it looked at, and ends within its case's deadline."""

    def make(check: Callable[[_Case], None]) -> Callable[[_Case], None]:
        @wraps(check)
        def guarded(case: _Case) -> None:
            within(case.deadline_s, what, partial(check, case))

        return guarded

    return make
