"""What one step costs: beside a recomputation of the view, and beside the same step into a table ten times as large."""
