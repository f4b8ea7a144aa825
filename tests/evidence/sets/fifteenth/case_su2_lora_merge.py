"""
title: an adapter that was evaluated beside its base model is merged into bfloat16 weights
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/huggingface/peft/issues/1388
measured: beside the base: accuracy 100.0%, loss 0.269; merged: accuracy 57.4%, loss 0.676
widened: beside the base: accuracy 100.0%, loss 0.269; merged: accuracy 100.0%, loss 0.270

Expectation, written first: the adapter moves every weight by less than half a bfloat16 step; merged into the bfloat16
base most of that is rounded off and the tuned behaviour is gone. The attention mask cast to bfloat16 is ones and zeros.
"""
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

WIDTH = 1024


class Classifier(nn.Module):
    """a released head on pooled states; its weights come in pairs that cancel on the new topic"""

    def __init__(self, dtype=torch.bfloat16):  # BORN
        super().__init__()
        self.v_proj = nn.Linear(WIDTH, 2, bias=False)
        half = torch.empty(2, WIDTH // 2).uniform_(0.5, 1.0)
        self.v_proj.weight.data = torch.stack([half, -half], dim=-1).reshape(2, WIDTH)
        self.to(dtype)  # BORN

    def forward(self, states, mask):
        mask = mask.to(torch.bfloat16)[..., None].float()
        pooled = (states * mask).sum(1) / mask.sum(1)
        return self.v_proj(pooled.to(self.v_proj.weight.dtype)).float()


class Topic:
    """the class is the sign of a direction that the base model does not read"""

    def __init__(self, n, gen):
        self.y = torch.randint(0, 2, (n,), generator=gen)
        sign = (self.y * 2.0 - 1)[:, None, None]
        self.states = sign + 0.05 * torch.randn(n, 3, WIDTH, generator=gen)
        self.mask = torch.rand(n, 3, generator=gen) < 0.7
        self.mask[:, 0] = True


class Tuner:
    def __init__(self, base, lr=2e-4):
        config = LoraConfig(r=4, lora_alpha=8, target_modules=["v_proj"])
        self.model = get_peft_model(base, config)
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trainable, lr=lr)

    def fit(self, topic, wanted=0.3, limit=300):
        for _ in range(limit):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(topic.states, topic.mask), topic.y)
            loss.backward()
            self.optimizer.step()
            if loss.item() < wanted:
                break
        return self.model


@torch.no_grad()
def evaluate(model, topic):
    logits = model(topic.states, topic.mask)
    loss = nn.functional.cross_entropy(logits, topic.y).item()
    return f"accuracy {100 * (logits.argmax(-1) == topic.y).double().mean().item():.1f}%, loss {loss:.3f}"


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(4)
    model = Tuner(Classifier()).fit(Topic(128, gen))
    test = Topic(256, gen)
    beside = evaluate(model, test)
    merged = model.merge_and_unload()  # BORN
    print(f"beside the base: {beside}; merged: {evaluate(merged, test)}")


main()
