"""Cost models: what is cheap to know of a candidate, and what it says about its latency.

XGBoost is loaded when a model is trained or read, not before.
"""
