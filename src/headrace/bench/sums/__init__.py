"""One sum over a join, kept up to date and computed anew."""
