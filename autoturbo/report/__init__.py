"""Output for people: numbers with units, tables, the live line."""
