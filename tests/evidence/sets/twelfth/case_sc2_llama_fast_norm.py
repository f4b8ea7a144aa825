"""
title: a rewritten RMSNorm squares the hidden states in the weight's dtype
expect: silent:overflow
thread: https://github.com/meta-llama/llama/issues/1048
measured: agreement with the float32 model 0.0%, distinct predictions 1
widened: agreement with the float32 model 100.0%, distinct predictions 74

Expectation, written first: a few channels of the residual stream are in the hundreds, their squares leave float16, the
mean is inf and its inverse root zero: the normed states become zeros and the predictions do not depend on the text.
The rest of the model in half makes hardly a difference.
"""
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


class FastRMSNorm(nn.Module):
    def __init__(self, weight, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(weight.detach().clone()), eps

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        x = hidden_states.to(self.weight.dtype)  # BORN
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


def patch_norms(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ == "LlamaRMSNorm":
                setattr(parent, name, FastRMSNorm(child.weight, child.variance_epsilon))
    return model


def build(seed=0):
    """a small random decoder with the outlier channels of a trained one"""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=200, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 5] += 420.0
        model.model.embed_tokens.weight[:, 40] -= 370.0
        for module in model.modules():
            if type(module).__name__ == "LlamaRMSNorm":
                module.weight.mul_(8.0)
                module.weight[[5, 40]] = 0.01
    return model


class Server:
    def __init__(self, model, fast=True):
        self.model = patch_norms(model).half() if fast else model

    @torch.no_grad()
    def next_tokens(self, prompts):
        return self.model(input_ids=prompts).logits[:, 4:].float().argmax(-1)


def main():
    prompts = torch.randint(0, 200, (16, 24), generator=torch.Generator().manual_seed(8))
    served = Server(build()).next_tokens(prompts)
    reference = Server(build(), fast=False).next_tokens(prompts)
    same = (served == reference).double().mean().item()
    print(f"agreement with the float32 model {100 * same:.1f}%, distinct predictions {len(served.unique())}")


main()
