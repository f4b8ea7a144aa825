"""
title: the trainable projector of a LLaVA-like model is kept in float32, its tokens go into bfloat16 embeddings
expect: collision
thread: https://github.com/hiyouga/LlamaFactory/issues/3807
fix_at: 35, 39, 44, 64, 98

Expectation, written first: the projector computes and answers in float32; writing its rows over the image tokens of
the bfloat16 embeddings is an index_put of two dtypes and is refused.
"""
from argparse import Namespace

import torch
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

IMAGE_TOKEN = 3


class LlavaLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_tower = CLIPVisionModel(CLIPVisionConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8,
        ))
        self.multi_modal_projector = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 24))
        self.language_model = LlamaForCausalLM(LlamaConfig(
            vocab_size=80, hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64,
        ))

    def image_features(self, pixel_values):
        dtype = self.vision_tower.dtype
        states = self.vision_tower(pixel_values.to(dtype), output_hidden_states=True).hidden_states[-2][:, 1:]
        states = states.to(self.multi_modal_projector[0].weight.dtype)
        return self.multi_modal_projector(states)

    def merge(self, embeds, features, input_ids):
        embeds = embeds.clone()
        embeds[input_ids == IMAGE_TOKEN] = features.flatten(0, 1)  # COLLIDES
        return embeds

    def forward(self, input_ids, pixel_values, labels):
        embeds = self.language_model.get_input_embeddings()(input_ids)
        embeds = self.merge(embeds, self.image_features(pixel_values), input_ids)
        return self.language_model(inputs_embeds=embeds, labels=labels).loss


class ModelLoader:
    def __init__(self, args):
        self.args = args

    def load(self):
        torch.manual_seed(self.args.seed)
        model = LlavaLike().to(self.args.compute_dtype)
        model.requires_grad_(False)
        self.mark_trainable(model)
        return model

    def mark_trainable(self, model):
        for name, param in model.named_parameters():
            if any(part in name for part in self.args.train_parts):
                param.requires_grad = True
                if not self.args.pure_bf16:
                    param.data = param.data.to(torch.float32)  # BORN


class PokemonSet:
    def __init__(self, n=4):
        g = torch.Generator().manual_seed(1)
        self.pixels, self.words = torch.rand(n, 3, 16, 16, generator=g), torch.randint(4, 80, (n, 6), generator=g)

    def batches(self, size):
        for i in range(0, len(self.pixels), size):
            words = self.words[i : i + size]
            ids = torch.cat([torch.full((len(words), 4), IMAGE_TOKEN), words], dim=1)
            yield {
                "input_ids": ids,
                "pixel_values": self.pixels[i : i + size],
                "labels": ids.masked_fill(ids == IMAGE_TOKEN, -100),
            }


def run_sft(args):
    model = ModelLoader(args).load()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.learning_rate)
    losses = []
    for batch in PokemonSet().batches(args.batch_size):
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(loss.item(), 2))
    return losses


if __name__ == "__main__":
    print(run_sft(Namespace(
        seed=0, compute_dtype=torch.bfloat16, pure_bf16=False, train_parts=("multi_modal_projector",),
        learning_rate=2e-4, batch_size=2,
    )))
