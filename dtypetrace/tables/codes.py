"""Every finding code and the title of its findings. A code is never used again for another finding.

DT1xx an operation was refused, DT2xx a dtype changed silently, DT3xx gradients and updates, DT4xx settings and
autocast, DT5xx optimizer and loss scaler.
"""

from __future__ import annotations

TITLES: dict[str, str] = {
    "DT101": "the two operands of a matmul have different dtypes",
    "DT102": "a convolution's input, weight and bias have different dtypes",
    "DT103": "the query, key, value or mask of an attention have different dtypes",
    "DT104": "a normalisation's input and its parameters have dtypes that do not go together",
    "DT105": "a recurrent layer's input, state and weights have different dtypes",
    "DT106": "the operands of an operation have different dtypes",
    "DT107": "the source and the destination of an indexed write have different dtypes",
    "DT108": "an index, label, mask or condition has a dtype that the operation does not take",
    "DT109": "an operation is not implemented for the dtype of its operand",
    "DT110": "a Python scalar does not fit into the dtype of the tensor",
    "DT111": "a result cannot be stored in a tensor of another dtype",
    "DT112": "an operation mixes dtypes that torch does not convert into each other",
    "DT113": "a loss does not take the dtype of its target",
    "DT114": "a gradient was refused because of its dtype",
    "DT115": "an optimizer's weights, gradients and state have different dtypes",
    "DT116": "the loss scaler refused the dtype of a gradient",
    "DT117": "the tensors of one bucket or one collective have different dtypes",
    "DT118": "autocast refused an operation, or the dtype of an operand",
    "DT119": "a parameter, a module or the default dtype was set to a dtype that torch does not allow there",
    "DT120": "a tensor cannot enter or leave torch in its dtype",
    "DT121": "a kernel needs another dtype than its operand has",
    "DT122": "two compared tensors have different dtypes",
    "DT201": "one wider operand silently widened the result and what was computed from it",
    "DT202": "a value was cast to a wider dtype and back, and nothing in between needed it",
    "DT203": "a write silently rounded values to a narrower dtype",
    "DT204": "a table was computed in a dtype that is too coarse for its entries",
    "DT205": "a weight is cast again at each call, with the same result every time",
    "DT206": "compiled code leaves out a rounding that the program makes",
    "DT207": "compiled code computes in another dtype than the program says",
    "DT301": "values overflow their dtype",
    "DT302": "values other than zero become zero in their dtype",
    "DT303": "an optimizer's state underflows",
    "DT304": "optimizer steps change few of the weights, or none",
    "DT305": "a trainable parameter gets no gradient, or only zeros",
    "DT306": "a gradient has another dtype than its parameter",
    "DT307": "small changes to a tensor are rounded away",
    "DT308": "one operation loses most of the precision",
    "DT309": "gradients of many micro-batches are added up in 16 bits",
    "DT401": "autocast computes in float16 and the weights are bfloat16, or the reverse",
    "DT402": "quantised weights cannot be trained, and the model has no adapter",
    "DT403": "an optimizer updates old weights, which the model no longer uses",
    "DT404": "gradients pass through float16 without a loss scaler, so small ones become zero",
    "DT405": "gradients have another dtype than the buckets that DDP made for them",
    "DT406": "the compiled backward pass ignores an autocast region",
    "DT407": "weights are not in the dtype that their class or configuration keeps them in",
    "DT408": "a checkpoint holds or gets another dtype than what trains, so a resumed run is not the same",
    "DT409": "an autocast region asks for a dtype that autocast does not take, and computes in another one",
    "DT410": "a setting asks for a dtype, and the run computes or reduces in another one",
    "DT501": "a loss scaler is used where nothing is float16",
    "DT502": "a loss scaler is used with float16 weights",
    "DT503": "trial steps with a copy of the optimizer break the weights or do not change them",
    "DT504": "gradients are limited while they still carry the loss scale",
    "DT505": "an optimizer counts its steps in 16 bits",
}

KINDS: dict[str, str] = {
    "DT201": "promotion",
    "DT202": "round-trip",
    "DT203": "downcast",
    "DT204": "downcast",
    "DT205": "round-trip",
    "DT301": "overflow",
    "DT302": "underflow",
    "DT303": "underflow",
    "DT304": "lost-update",
    "DT305": "zero-gradient",
    "DT306": "gradient-dtype",
    "DT307": "lost-update",
    "DT308": "precision-loss",
    "DT309": "lost-update",
    "DT406": "autocast-backward",
    **dict.fromkeys(("DT407", "DT409", "DT410", "DT504", "DT505"), "plan"),
}
"""The kind of a code's findings; DT206, DT207 and DT408 have several."""


OF_VALUES = frozenset({"overflow", "underflow", "downcast", "lost-update", "precision-loss", "zero-gradient"})
"""Kinds of findings about damaged values."""
