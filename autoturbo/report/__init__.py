"""What people read: numbers with units, tables, the live line."""
