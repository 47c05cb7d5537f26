"""Subplans that several views share: which are the same but for filters and projections, and one plan for them."""
