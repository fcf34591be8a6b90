"""Order and binding of instances to clusters and cores: Algorithms 3 and 4."""
