"""
title: a segmentation trainer clips the gradients while they still carry the loss scale
expect: silent:plan
thread: https://github.com/milesial/Pytorch-UNet/issues/468
measured: last epoch's loss 0.680, dice 0.23
widened: last epoch's loss 0.152, dice 0.72

Expectation, written first: the clipped norm is 1 with the loss scale still in it; after the scaler divides by 65536
the step is tens of thousands of times too small and the net does not learn. The float16 forward makes no difference.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class DiscDataset(Dataset):
    """pictures of one bright disc and its mask, flattened to patches"""

    def __init__(self, n=256, size=16, seed=2):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        cy, cx = torch.randint(4, size - 4, (2, n, 1, 1), generator=g)
        self.masks = ((yy - cy) ** 2 + (xx - cx) ** 2 <= 9).long()
        self.images = self.masks * 0.8 + 0.3 * torch.randn(n, size, size, generator=g)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        return {"image": self.images[i].unfold(0, 4, 4).unfold(1, 4, 4).reshape(16, 16), "mask": self.masks[i]}


class PatchUNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.down = nn.Linear(16, width)
        self.mid = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.up = nn.Linear(2 * width, 32)

    def forward(self, patches):
        skip = self.down(patches)
        out = self.up(torch.cat([skip, self.mid(skip)], -1))
        b = out.shape[0]
        return out.view(b, 4, 4, 2, 4, 4).permute(0, 3, 1, 4, 2, 5).reshape(b, 2, 16, 16)


def dice_score(logits, mask):
    pred = logits.argmax(1)
    return (2 * (pred * mask).sum() / (pred.sum() + mask.sum()).clamp(min=1)).item()


class Trainer:
    def __init__(self, amp=True, gradient_clipping=1.0, learning_rate=0.05):
        torch.manual_seed(0)
        self.amp, self.clip = amp, gradient_clipping
        self.model = PatchUNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate, momentum=0.9)
        self.grad_scaler = torch.amp.GradScaler("cpu", enabled=amp)
        self.loader = DataLoader(DiscDataset(), batch_size=16, shuffle=True)

    def train_step(self, batch):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.amp):
            logits = self.model(batch["image"])
        loss = F.cross_entropy(logits.float(), batch["mask"])
        self.optimizer.zero_grad(set_to_none=True)
        self.grad_scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)  # BORN
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        return loss.item()

    def fit(self, epochs=5):
        for _ in range(epochs):
            losses = [self.train_step(b) for b in self.loader]
        return sum(losses) / len(losses)

    @torch.no_grad()
    def evaluate(self):
        data = DiscDataset(n=64, seed=9)
        batch = torch.utils.data.default_collate([data[i] for i in range(len(data))])
        return dice_score(self.model(batch["image"]), batch["mask"])


trainer = Trainer()
loss = trainer.fit()
print(f"last epoch's loss {loss:.3f}, dice {trainer.evaluate():.2f}")
