"""State under a memory budget: which arrangements to keep while views wait for their next change."""
