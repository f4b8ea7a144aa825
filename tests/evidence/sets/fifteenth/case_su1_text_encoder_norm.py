"""
title: a text encoder in float16 receives token vectors of which the trained ones are float32
expect: collision
thread: https://github.com/Nerogar/OneTrainer/issues/655
fix_at: 23, 33, 37, 44, 51, 64

Expectation, written first: the encoder is float16, the additional embedding is a float32 parameter; joining both
promotes the whole sentence to float32 and the first layer norm has half parameters for a float input.
"""
import torch
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel


class AdditionalEmbedding(nn.Module):
    """the vectors of new tokens behind the vocabulary of the original embedding"""

    def __init__(self, original, count, seed=0):
        super().__init__()
        self.original = original
        gen = torch.Generator().manual_seed(seed)
        start = torch.randn(count, original.embedding_dim, generator=gen) * 0.02
        self.vectors = nn.Parameter(start)  # BORN

    @property
    def weight(self):
        return self.original.weight

    def forward(self, ids):
        known = ids.clamp(max=self.original.num_embeddings - 1)
        new = (ids - self.original.num_embeddings).clamp(min=0)
        is_new = (ids >= self.original.num_embeddings).unsqueeze(-1)
        return torch.where(is_new, self.vectors[new], self.original(known))  # BORN


class ModelLoader:
    def __init__(self, weight_dtype=torch.float16):
        self.weight_dtype = weight_dtype

    def text_encoder(self):
        torch.manual_seed(4)
        config = CLIPTextConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                num_attention_heads=4, max_position_embeddings=20, bos_token_id=98, eos_token_id=99)
        return CLIPTextModel(config).to(self.weight_dtype).requires_grad_(False)


class EmbeddingSetup:
    def __init__(self, encoder, tokens):
        self.encoder = encoder
        holder = encoder.text_model.embeddings if hasattr(encoder, "text_model") else encoder.embeddings
        self.wrapper = AdditionalEmbedding(holder.token_embedding, tokens)
        holder.token_embedding = self.wrapper

    def parameters(self):
        return [self.wrapper.vectors]


class Trainer:
    def __init__(self, setup, target):
        self.setup, self.target = setup, target
        self.optimizer = torch.optim.SGD(setup.parameters(), lr=2.0)

    def encode(self, ids):
        return self.setup.encoder(input_ids=ids).last_hidden_state  # COLLIDES

    def step(self, ids):
        loss = (self.encode(ids).float() - self.target).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def prompts(count, new_token):
    gen = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 98, (count, 10), generator=gen)
    ids[:, 0], ids[:, 4], ids[:, -1] = 98, new_token, 99
    return ids


if __name__ == "__main__":
    trainer = Trainer(EmbeddingSetup(ModelLoader().text_encoder(), tokens=2), target=torch.linspace(-1, 1, 32))
    print("losses", [round(trainer.step(prompts(3, new_token=100)), 4) for _ in range(3)])
