"""Adapters: finds them, measures them, retrains them in float32, and judges whether they learn."""
