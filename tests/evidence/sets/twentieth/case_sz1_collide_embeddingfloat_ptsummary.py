"""
title: the model summary of a captioning decoder stops in its embedding
expect: collision
thread: https://github.com/sksq96/pytorch-summary/issues/64

Expectation, written first: `summary` feeds random tensors of its default type FloatTensor through the model, and the decoder's embedding takes
only integer indices. The dtype of the dummy input must be chosen for the model: by the caller, as the default, or where the tensor is made.
"""
from collections import OrderedDict

import torch
import torch.nn as nn


class CaptionDecoder(nn.Module):
    def __init__(self, vocab_size=200, embed_dim=24, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(0.2)
        self.project = nn.Linear(embed_dim, hidden)
        self.fc = nn.Linear(hidden, vocab_size)

    def forward(self, encoded_captions):
        embeddings = self.embedding(encoded_captions)  # COLLIDES
        h = torch.tanh(self.project(self.dropout(embeddings)))
        return self.fc(h)


def summary(model, input_size, batch_size=-1, dtype=torch.FloatTensor):  # BORN
    def register_hook(module):
        def hook(module, input, output):
            class_name = str(module.__class__).split(".")[-1].split("'")[0]
            m_key = "%s-%i" % (class_name, len(summary) + 1)
            summary[m_key] = OrderedDict()
            summary[m_key]["input_shape"] = [batch_size] + list(input[0].size())[1:]
            summary[m_key]["output_shape"] = [batch_size] + list(output.size())[1:]
            params = 0
            for kind in ("weight", "bias"):
                value = getattr(module, kind, None)
                if isinstance(value, torch.Tensor):
                    params += value.numel()
                    summary[m_key]["trainable"] = value.requires_grad
            summary[m_key]["nb_params"] = params

        if not isinstance(module, (nn.Sequential, nn.ModuleList)) and module is not model:
            hooks.append(module.register_forward_hook(hook))

    if isinstance(input_size, tuple):
        input_size = [input_size]
    x = [torch.rand(2, *in_size).type(dtype) for in_size in input_size]  # BORN
    summary, hooks = OrderedDict(), []
    model.apply(register_hook)
    model(*x)
    for h in hooks:
        h.remove()

    print("{:>20}  {:>25} {:>12}".format("Layer (type)", "Output Shape", "Param #"))
    total_params, total_output = 0, 0
    for layer, row in summary.items():
        print("{:>20}  {:>25} {:>12}".format(layer, str(row["output_shape"]), "{0:,}".format(row["nb_params"])))
        total_params += row["nb_params"]
        total_output += abs(torch.tensor(row["output_shape"]).prod().item())
    print("Total params: {0:,}".format(total_params))
    print("Forward pass size (MB): %0.3f" % (2.0 * total_output * 4.0 / 1024 ** 2))
    return total_params


def main():
    torch.manual_seed(0)
    decoder = CaptionDecoder().eval()
    total = summary(decoder, (18,))  # BORN
    captions = torch.randint(0, 200, (2, 18))
    print("logits", tuple(decoder(captions).shape), "params", total)


if __name__ == "__main__":
    main()
