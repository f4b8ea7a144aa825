"""A refused call, made again with casts. Enters the hooks through one seam."""
