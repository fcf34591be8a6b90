"""Contract tests for what others plug in: samplers so far.

A plug-in's own suite calls them; nothing here needs pytest. Each check is a function that raises
:class:`ContractError` (an ``AssertionError``) saying what is wrong::

    import pytest
    from autoturbo.testing import SAMPLER_CHECKS, SamplerCase

    @pytest.mark.parametrize("check", SAMPLER_CHECKS, ids=lambda check: check.__name__)
    def test_my_sampler_keeps_the_contract(check):
        check(SamplerCase(lambda seed: MySampler(seed=seed)))

or, all at once, ``check_sampler(lambda seed: MySampler(seed=seed))``.
"""

from __future__ import annotations

from autoturbo.testing.contract import ContractError
from autoturbo.testing.samplers import SAMPLER_CHECKS, SamplerCase, check_sampler

__all__ = ["SAMPLER_CHECKS", "ContractError", "SamplerCase", "check_sampler"]
