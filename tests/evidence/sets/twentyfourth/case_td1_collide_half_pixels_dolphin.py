"""
title: Pixel values are always made half, the model is float on the CPU
expect: collision
thread: https://github.com/bytedance/Dolphin/pull/148
fix_at: the branch that loads the model in float on the CPU

Expectation, written first: The model is loaded in half only on a GPU and stays float32 on the CPU, but the
processor's pixels are cast to half in every case. The patch embedding gets Half input and Float bias and
raises.
"""
import torch
import torch.nn as nn


class DonutProcessor:
    def __init__(self, size):
        self.size = size
        self.vocab = {"<s>": 0, "Parse": 1, "the": 2, "reading": 3, "order": 4, "</s>": 5}

    def images(self, images):
        pixels = torch.stack([nn.functional.interpolate(im[None], size=self.size)[0] for im in images])
        return (pixels - 0.5) / 0.5

    def tokenize(self, prompts):
        return torch.tensor([[0] + [self.vocab[w] for w in p.split()] for p in prompts])


class SwinPatchEmbeddings(nn.Module):
    def __init__(self, dim, patch=8):
        super().__init__()
        self.projection = nn.Conv2d(3, dim, patch, stride=patch)
        self.norm = nn.LayerNorm(dim)

    def forward(self, pixel_values):
        x = self.projection(pixel_values)  # COLLIDES
        return self.norm(x.flatten(2).transpose(1, 2))


class VisionEncoderDecoderModel(nn.Module):
    def __init__(self, dim=32, vocab=24):
        super().__init__()
        self.encoder = SwinPatchEmbeddings(dim)
        self.embed = nn.Embedding(vocab, dim)
        self.cross = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab)

    @torch.no_grad()
    def generate(self, pixel_values, decoder_input_ids, max_length):
        memory = self.encoder(pixel_values)
        ids = decoder_input_ids
        while ids.shape[1] < max_length:
            h = self.embed(ids)
            h, _ = self.cross(h, memory, memory, need_weights=False)
            ids = torch.cat([ids, self.lm_head(h[:, -1:]).argmax(-1)], dim=1)
        return ids


class DOLPHIN:
    def __init__(self, device=None):
        self.processor = DonutProcessor((64, 48))
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.model = VisionEncoderDecoderModel().eval().to(self.device)
        if self.device != "cpu":
            self.model = self.model.half()

    def chat(self, prompts, images):
        batch_inputs = self.processor.images(images)
        batch_pixel_values = batch_inputs.half().to(self.device)  # BORN
        batch_ids = self.processor.tokenize(prompts).to(self.device)
        outputs = self.model.generate(pixel_values=batch_pixel_values, decoder_input_ids=batch_ids,
                                      max_length=12)
        return outputs.tolist()


def main():
    torch.manual_seed(13)
    model = DOLPHIN(device="cpu")
    pages = [torch.rand(3, 120, 90), torch.rand(3, 80, 60)]
    for seq in model.chat(["Parse the reading order"] * 2, pages):
        print(seq)


if __name__ == "__main__":
    main()
