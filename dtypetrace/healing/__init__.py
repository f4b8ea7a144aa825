"""A refused call, repeated with casts. It plugs into the hooks through ``capture.protocols.Healer``.

``healer`` decides what to cast and ``casting`` casts. ``optimizer_lists`` and ``gradients`` act before calls that
cannot be repeated. ``saved_tensors`` keeps failed attempts out of a checkpoint. ``handled`` finds the exceptions that
the program itself handles.
"""
