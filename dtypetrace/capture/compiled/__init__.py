"""Compiled code while it is watched: it runs as it does alone, and one op is recorded for each call of a region."""
