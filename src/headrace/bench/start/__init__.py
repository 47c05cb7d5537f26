"""What a user waits for first: from the start of a process to the answer of a view."""
