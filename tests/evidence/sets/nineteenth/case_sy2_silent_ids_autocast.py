"""
title: Token ids above 2048 come back as their even neighbours after the engine casts inputs to fp16
expect: silent:round-trip|precision-loss|downcast
thread: https://github.com/huu4ontocord/MDEL/issues/44
measured: copy accuracy 0.50 | ids below 2048 1.00, above 4096 0.27
widened: copy accuracy 1.00 | ids below 2048 1.00, above 4096 1.00
innocent: copy accuracy 0.50 | ids below 2048 1.00, above 4096 0.27
suspect: 51 small-rounding

Expectation, written first: The engine's auto_cast turns every input tensor into half, the token ids among them, and the embedding stage turns them
back with long(); whole numbers above 2048 have no exact float16, so most ids become neighbours. The model's weights in half are
read as they are and leave the predicted tokens as they would be in float32.
"""
import torch
import torch.nn as nn


class EmbeddingPipe(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size)

    def forward(self, args):
        input_ids, attention_mask = args
        hidden = self.word_embeddings(input_ids.long())  # BORN
        return hidden * attention_mask[..., None].to(hidden.dtype), attention_mask


class NormPipe(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, args):
        hidden, attention_mask = args
        return self.norm(hidden), attention_mask


class ParallelLinearPipe(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))

    def forward(self, args):
        hidden, _ = args
        return hidden @ self.weight.t()


class PipelineEngine:
    def __init__(self, module, auto_cast=True):
        self.module = module.half()
        self.auto_cast = auto_cast

    def _cast_inputs_half(self, value):
        if isinstance(value, (tuple, list)):
            return type(value)(self._cast_inputs_half(v) for v in value)
        return value.half()  # BORN

    @torch.no_grad()
    def eval_batch(self, inputs):
        if self.auto_cast:
            inputs = self._cast_inputs_half(inputs)  # BORN
        return self.module(inputs)


def build_model(vocab_size, hidden_size):
    torch.manual_seed(0)
    model = nn.Sequential(EmbeddingPipe(vocab_size, hidden_size), NormPipe(hidden_size), ParallelLinearPipe(vocab_size, hidden_size))
    with torch.no_grad():
        table = model[0].word_embeddings.weight
        model[2].weight.copy_(table[torch.arange(vocab_size)])
    return model


def main():
    vocab_size = 8000
    engine = PipelineEngine(build_model(vocab_size, 64))
    g = torch.Generator().manual_seed(1)
    input_ids = torch.randint(0, vocab_size, (2, 100), generator=g)
    attention_mask = torch.ones(2, 100, dtype=torch.int64)
    logits = engine.eval_batch((input_ids, attention_mask))
    copied = logits.float().argmax(dim=-1) == input_ids
    print(f"copy accuracy {copied.float().mean():.2f}")
    print(f"ids below 2048 {copied[input_ids < 2048].float().mean():.2f}, above 4096 {copied[input_ids > 4096].float().mean():.2f}")


if __name__ == "__main__":
    main()
