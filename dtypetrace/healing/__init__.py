"""A refused call, made again with casts. It plugs into the hooks through one interface (``capture.protocols.Healer``).

``healer`` decides what to cast and ``casting`` casts; ``ahead`` and ``gradients`` act before calls that cannot be
repeated; ``saved_tensors`` keeps failed attempts out of a checkpoint; ``handled`` finds what the program handles.
"""
