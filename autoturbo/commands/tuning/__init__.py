"""Commands that search, and that show what searches found."""
