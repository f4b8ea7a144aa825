"""
title: nucleus sampling sorts float32 logits and scatters them back into a tensor of the model's bfloat16
expect: collision
needs: transformers
fix_at: 46

After https://github.com/lucidrains/PaLM-rlhf-pytorch/issues/60, https://github.com/vllm-project/vllm/issues/27710 and
https://github.com/tinygrad/tinygrad/pull/9109.
Right: the tensor that is filled takes the dtype of the sorted logits.
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(618)


class Temperature:
    def __init__(self, value):
        self.value = value

    def __call__(self, logits):
        return logits.float() / self.value  # BORN


class Nucleus:
    """Keeps the fewest tokens that hold the mass p."""

    def __init__(self, p, buffer):
        self.p, self.buffer = p, buffer

    def __call__(self, logits):
        ordered, places = logits.sort(descending=True)
        mass = ordered.softmax(-1).cumsum(-1)
        beyond = mass - ordered.softmax(-1) > self.p
        ordered = ordered.masked_fill(beyond, float("-inf"))
        kept = self.buffer(logits.shape)
        return kept.scatter(1, places, ordered)  # COLLIDES


class Decoder:
    def __init__(self, vocab=64, dtype=torch.bfloat16):
        config = LlamaConfig(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                             max_position_embeddings=64)
        self.model = LlamaForCausalLM(config).to(dtype).eval()
        self.vocab = vocab
        self.shared = torch.full((8, vocab), float("-inf"), dtype=dtype)

    def buffer(self, shape):
        """One buffer for all steps, filled anew."""
        return self.shared[:shape[0], :shape[1]].fill_(float("-inf"))

    @torch.no_grad()
    def sample(self, ids, steps, filters):
        cache = None
        current = ids
        for _ in range(steps):
            out = self.model(current, past_key_values=cache, use_cache=True)
            cache, logits = out.past_key_values, out.logits[:, -1]
            for each in filters:
                logits = each(logits)
            current = torch.multinomial(logits.float().softmax(-1), 1)
            ids = torch.cat([ids, current], dim=1)
        return ids


decoder = Decoder()
prompt = torch.randint(1, 64, (3, 5))
print(len(decoder.sample(prompt, 4, [])[0]))
print(len(decoder.sample(prompt, 4, [Temperature(0.8), Nucleus(0.9, decoder.buffer)])[0]))
