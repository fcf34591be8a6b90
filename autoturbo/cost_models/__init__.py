"""Cost models: what is cheap to know of a setting, and what it says about its latency.

XGBoost is loaded when a model is trained or read, not before.
"""

from autoturbo.cost_models.advisor import KernelAdvisor
from autoturbo.cost_models.features import FEATURES_SCHEMA, feature_names, kernel_rows
from autoturbo.cost_models.model import CostModel, Example

__all__ = [
    "FEATURES_SCHEMA",
    "CostModel",
    "Example",
    "KernelAdvisor",
    "feature_names",
    "kernel_rows",
]
