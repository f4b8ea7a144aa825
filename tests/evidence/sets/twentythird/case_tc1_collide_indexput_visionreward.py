"""
title: bf16 reward model keeps its vision tower in float32 and index_puts the float32 image features into bf16 embeddings
expect: collision
thread: https://github.com/zai-org/VisionReward/issues/7
fix_at:

Expectation, written first: the model is loaded in bfloat16, but the vision tower is put back to float32, so the image features come out float32. They
are written over the placeholders in the bfloat16 token embeddings, and index_put does not convert. Wrong is the missing cast between the tower and
the embeddings, or that the tower stayed float32.
"""
import argparse

import torch
import torch.nn as nn

LANGUAGE_TOKEN_TYPE, VISION_TOKEN_TYPE = 0, 1


class PatchTower(nn.Module):
    def __init__(self, dim, patch=4):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, stride=patch)
        self.norm = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, dim)

    def forward(self, images):
        x = self.proj(images).flatten(2).transpose(1, 2)
        return self.linear(self.norm(x))


class RewardModel(nn.Module):
    def __init__(self, vocab=50, dim=16, questions=6):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.vision = PatchTower(dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True, dropout=0.0)
        self.score = nn.Linear(dim, questions)

    @classmethod
    def from_random(cls, torch_type):
        model = cls().to(torch_type)
        model.vision.float()  # BORN
        return model.eval()

    def encode_images(self, images):
        images = images.to(self.vision.proj.weight.dtype)
        return self.vision(images)  # BORN

    def forward(self, input_ids, token_type_ids, images):
        inputs_embeds = self.embed_tokens(input_ids)
        features = self.encode_images(images).flatten(0, 1)
        inputs_embeds = inputs_embeds.index_put([token_type_ids == VISION_TOKEN_TYPE], features)  # BORN COLLIDES
        hidden = self.layer(inputs_embeds)
        return self.score(hidden[:, -1])


def build_inputs(image, question_ids, num_patches):
    vision = [LANGUAGE_TOKEN_TYPE] + [VISION_TOKEN_TYPE] * num_patches
    token_types = vision + [LANGUAGE_TOKEN_TYPE] * len(question_ids)
    ids = [1] + [0] * num_patches + question_ids
    return {
        "input_ids": torch.tensor([ids]),
        "token_type_ids": torch.tensor([token_types]),
        "images": image.unsqueeze(0),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bf16", action="store_true", default=True)
    parser.add_argument("--score", action="store_true", default=True)
    args = parser.parse_args([])
    torch.manual_seed(7)
    torch_type = torch.bfloat16 if args.bf16 else torch.float32
    model = RewardModel.from_random(torch_type)
    inputs = build_inputs(torch.rand(3, 8, 8), [11, 12, 13], num_patches=4)
    with torch.no_grad():
        answers = model(**inputs)
    if args.score:
        weight = torch.linspace(-0.5, 0.5, answers.shape[-1])
        print("score", float((answers.float() > 0).float()[0] @ weight))


if __name__ == "__main__":
    main()
