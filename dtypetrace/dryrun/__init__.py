"""Runs a training script without its GPU, weights and hours: large tensors are on torch's meta device, and pretend to
be on the device that the script names."""
