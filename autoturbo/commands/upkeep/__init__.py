"""Commands about targets, databases, data sets, cost models and the installation."""
