"""Rows of joins as they are kept: factorized, listed, or computed anew."""
