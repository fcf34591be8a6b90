"""Data that ships with the package: the workloads, and data sets measured on them."""
