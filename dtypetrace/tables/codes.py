"""Every finding code and the title of its findings. A code is never used again for another finding.

DT1xx an operation was refused, DT2xx a dtype changed silently, DT3xx gradients and updates, DT4xx the precision plan
and autocast, DT5xx optimizer and loss scaler.
"""

from __future__ import annotations

TITLES: dict[str, str] = {
    "DT101": "the two operands of a matmul disagree about their dtype",
    "DT102": "a convolution's input and its weight or bias disagree about their dtype",
    "DT103": "the query, key, value or mask of an attention disagree about their dtype",
    "DT104": "a normalisation's input and its parameters disagree about their dtype",
    "DT105": "a recurrent layer's input, state and weights disagree about their dtype",
    "DT106": "the operands of an operation disagree about their dtype",
    "DT107": "the source and the destination of an indexed write disagree about their dtype",
    "DT108": "an index, a label, a mask or a condition is of a kind of dtype that the operation does not take",
    "DT109": "an operation is not implemented for the dtype it was given",
    "DT110": "a Python scalar does not fit the dtype that is to hold it",
    "DT111": "a result cannot be written into a destination of another dtype",
    "DT112": "an operation mixes dtypes between which torch does not convert",
    "DT113": "a loss and its target disagree about their dtype",
    "DT114": "a gradient was refused because of its dtype",
    "DT115": "an optimizer's parameters, gradients and state disagree about their dtype",
    "DT116": "the loss scaler refused the dtype of a gradient",
    "DT117": "the tensors of one bucket or one collective disagree about their dtype",
    "DT118": "autocast refused an operation or the dtype of an operand",
    "DT119": "a parameter, a module or the default was given a dtype that it cannot have",
    "DT120": "a tensor cannot enter or leave torch in the dtype it has",
    "DT121": "a library's kernel demands a dtype that its operand does not have",
    "DT122": "two tensors that are compared disagree about their dtype",
    "DT201": "one wider operand silently widened the result, and what was computed from it",
    "DT202": "a value was cast away and back, and nothing between needed the other dtype",
    "DT203": "a write silently narrowed the values that it stored",
    "DT204": "a table was computed in a dtype that cannot distinguish its entries",
    "DT205": "a weight was cast again at each call, with the same result every time",
    "DT301": "a finite value outgrew its dtype",
    "DT302": "nonzero values are flushed to zero",
    "DT303": "an optimizer's state underflows",
    "DT304": "an optimizer step leaves the weights where they are",
    "DT305": "a trainable parameter gets no gradient but zeros",
    "DT306": "a gradient has another dtype than its parameter",
    "DT307": "small changes are rounded away",
    "DT308": "one operation loses most of the precision",
    "DT401": "autocast and the weights use different half dtypes",
    "DT402": "quantised weights cannot be trained, and nothing else is trained",
    "DT403": "an optimizer trains parameters that the model no longer has",
    "DT404": "gradients pass through float16, and no loss scaler keeps them in its range",
    "DT405": "gradients and the buckets of DDP disagree about their dtype",
    "DT501": "a loss scaler is used where nothing is float16",
    "DT502": "a loss scaler is used with float16 weights",
    "DT503": "an optimizer cannot train weights of this dtype",
}
