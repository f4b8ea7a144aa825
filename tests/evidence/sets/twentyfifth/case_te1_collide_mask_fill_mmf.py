"""
title: -1e9 as fill value for half scores when fp16 is on
expect: collision
thread: https://github.com/facebookresearch/mmf/pull/962
fix_at: (none beside the marked)

Expectation, written first: With training.fp16 the transformer head runs in half and the answer scores are half.
Answers that are not in the vocabulary are filled with -1e9, which half cannot hold; masked_fill refuses to convert
the value. In float32 the same code works.
"""
import torch
import torch.nn as nn


class OcrPtrNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.scale = hidden ** -0.5

    def forward(self, query_inputs, key_inputs, attention_mask):
        scores = self.query(query_inputs) @ self.key(key_inputs).transpose(1, 2) * self.scale
        return scores.masked_fill(attention_mask[:, None] == 0, -1e9)  # BORN COLLIDES


class MMFTransformer(nn.Module):
    def __init__(self, vocab, hidden, num_answers):
        super().__init__()
        self.word, self.image = nn.Embedding(vocab, hidden), nn.Linear(12, hidden)
        self.mix = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.Tanh())
        self.classifier = nn.Linear(hidden, num_answers)
        self.ptr = OcrPtrNet(hidden)

    def forward(self, sample_list):
        text = self.word(sample_list["input_ids"])
        image = self.image(sample_list["image_feature"].to(self.image.weight.dtype))
        h = self.mix(torch.cat([text, image], dim=1))
        cls = h[:, :1]
        fixed = self.classifier(cls)
        dynamic = self.ptr(cls, h[:, text.shape[1]:], sample_list["image_mask"])
        return torch.cat([fixed, dynamic], dim=-1).squeeze(1)


class Config:
    fp16 = True  # BORN
    hidden, vocab, num_answers = 32, 50, 6


class Evaluator:
    def __init__(self, config):
        self.model = MMFTransformer(config.vocab, config.hidden, config.num_answers).eval()
        if config.fp16:
            self.model = self.model.half()  # BORN

    @torch.no_grad()
    def evaluate(self, loader):
        correct = total = 0
        for sample_list in loader:
            scores = self.model(sample_list)
            correct += (scores.argmax(-1) == sample_list["targets"]).sum().item()
            total += len(scores)
        return correct, total


def build_loader(config, n_batches=2, batch=4, boxes=5):
    for _ in range(n_batches):
        n_boxes = torch.randint(1, boxes + 1, (batch,))
        yield {
            "input_ids": torch.randint(0, config.vocab, (batch, 7)),
            "image_feature": torch.randn(batch, boxes, 12),
            "image_mask": (torch.arange(boxes)[None] < n_boxes[:, None]).long(),
            "targets": torch.randint(0, config.num_answers + boxes, (batch,)),
        }


def main():
    torch.manual_seed(962)
    config = Config()
    correct, total = Evaluator(config).evaluate(build_loader(config))
    print(f"val/vqa_accuracy {correct}/{total}")


if __name__ == "__main__":
    main()
