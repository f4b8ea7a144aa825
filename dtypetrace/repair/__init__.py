"""Candidates for a source patch, runs of the patched program, and the proof that a patch works."""
