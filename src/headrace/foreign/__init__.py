"""Continuous queries over foreign-key joins: live tuples, at constant cost an update (Cquirrel)."""
