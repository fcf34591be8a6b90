"""Cost models: cheap features of candidates, and the latency that they predict.

XGBoost is loaded when a model is trained or read, not before.
"""
