"""Adapters: find them, measure them, retrain them in float32, and judge whether they learn."""
