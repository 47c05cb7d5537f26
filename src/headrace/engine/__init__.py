"""The front door: engines, tables, views and steps."""
