"""
title: block-wise quantization of GPT-J stops in the rotary embedding's gather
expect: collision
thread: https://github.com/intel/auto-round/issues/1838

Expectation, written first: the quantizer records the inputs of the first block and converts everything in them that is a tensor to the tuning
dtype, position_ids included. In bf16 they are no index any more, and the block's `torch.gather` refuses them. Only floating-point inputs may
be converted.
"""
import torch
import torch.nn as nn
from transformers import GPTJConfig, GPTJForCausalLM


def to_dtype(input, dtype):
    if input is None:
        return None
    if isinstance(input, torch.Tensor):
        return input.to(dtype)  # BORN
    if isinstance(input, dict):
        return {k: to_dtype(v, dtype) for k, v in input.items()}
    if isinstance(input, (list, tuple)):
        return type(input)(to_dtype(v, dtype) for v in input)
    return input


class BlockInputRecorder:
    def __init__(self, block):
        self.inputs, self.kwargs = [], None
        self.handle = block.register_forward_pre_hook(self.hook, with_kwargs=True)

    def hook(self, module, args, kwargs):
        kwargs = dict(kwargs)
        self.inputs.append(args[0] if args else kwargs.pop("hidden_states"))
        self.kwargs = {k: v for k, v in kwargs.items() if k in ("position_ids", "attention_mask")}


def quant_tensor_sym(weight, bits=4, group_size=16):
    shape = weight.shape
    w = weight.reshape(-1, group_size)
    scale = w.abs().amax(dim=1, keepdim=True).clamp(min=1e-5) / (2 ** (bits - 1) - 1)
    return (torch.round(w / scale).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale).reshape(shape)


class RTNQuantizer:
    def __init__(self, model, bits=4, amp_dtype=torch.bfloat16):
        self.model, self.bits, self.amp_dtype = model, bits, amp_dtype

    @torch.no_grad()
    def calibrate(self, samples):
        recorder = BlockInputRecorder(self.model.transformer.h[0])
        for ids in samples:
            self.model(ids, use_cache=False)
        recorder.handle.remove()
        return recorder.inputs, recorder.kwargs

    @torch.no_grad()
    def block_forward(self, block, inputs, input_others):
        outputs = []
        for hidden in inputs:
            hidden = to_dtype(hidden, self.amp_dtype)
            out = block(hidden, **input_others)  # COLLIDES
            outputs.append(out[0] if isinstance(out, tuple) else out)
        return outputs

    def quantize(self, samples):
        inputs, input_others = self.calibrate(samples)
        input_others = to_dtype(input_others, self.amp_dtype)  # BORN
        for i, block in enumerate(self.model.transformer.h):
            block.to(self.amp_dtype)
            reference = self.block_forward(block, inputs, input_others)
            for m in block.modules():
                if isinstance(m, nn.Linear):
                    m.weight.data = quant_tensor_sym(m.weight.data.float(), self.bits).to(self.amp_dtype)
            outputs = self.block_forward(block, inputs, input_others)
            mse = sum((a.float() - b.float()).pow(2).mean().item() for a, b in zip(reference, outputs)) / len(outputs)
            print(f"transformer.h.{i} mse {mse:.6f}")
            inputs = reference


if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPTJConfig(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, rotary_dim=8, bos_token_id=0, eos_token_id=0)
    RTNQuantizer(GPTJForCausalLM(config).eval()).quantize([torch.randint(0, 64, (1, 12)) for _ in range(2)])
