"""The comparison of a cluster under fire with one process, in its smallest form."""

from __future__ import annotations

import pytest
from cluster_tuning import compared


@pytest.mark.ray
@pytest.mark.full
def test_two_models_on_two_targets_end_alike_while_workers_are_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert compared(models=2, targets=2, trials=17, every=4.0)
    out = capsys.readouterr().out
    assert "exported best schedules" in out
    assert "cluster" in out
