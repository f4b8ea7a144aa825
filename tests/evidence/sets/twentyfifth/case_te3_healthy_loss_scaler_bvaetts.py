"""
title: The dynamic loss scaler reports overflow in the first iterations
expect: clean
thread: https://github.com/LEEYOONHYUNG/BVAE-TTS/issues/3
measured: skipped under a tenth True finite True / validation loss 0.003 (two steps skipped)
suspect: 31 harmless (the scaler starts too high on purpose, finds inf, skips those steps and halves the scale)

Expectation, written first: The scaler begins at 2**22, so the scaled half gradients overflow in the first few
steps. GradScaler sees the inf, leaves the weights alone and lowers the scale until it fits. All later steps are
good, the regression reaches the same loss as in float32 and the weights stay finite.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DurationNet(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, x):
        return x + self.net(x)


class HParams:
    lr = 1e-2
    train_steps = 200
    batch_size = 64
    grad_clip = 5.0
    init_scale = 2.0 ** 22
    fp16_run = True


def make_batch(hps, mix, generator):
    text = torch.randn(hps.batch_size, mix.shape[0], generator=generator)
    mel = text + 0.5 * torch.tanh(text @ mix)
    return text, mel


def train(hps):
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(33)
    mix = torch.randn(8, 8, generator=generator) * 0.4
    model = DurationNet(8, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=hps.lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=hps.init_scale, growth_interval=10000, enabled=hps.fp16_run)
    skipped = 0
    for _ in range(hps.train_steps):
        text, mel = make_batch(hps, mix, generator)
        with torch.autocast("cpu", dtype=torch.float16, enabled=hps.fp16_run):
            out = model(text)
        loss = F.mse_loss(out.float(), mel, reduction="mean")
        optimizer.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), hps.grad_clip)
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < scale:
            skipped += 1
            print(f"Gradient overflow. Skipping step, reducing loss scale to {scaler.get_scale():.0f}")
    return model, mix, generator, skipped


@torch.no_grad()
def evaluate(hps, model, mix, generator):
    text, mel = make_batch(hps, mix, generator)
    return F.mse_loss(model(text), mel).item()


def main():
    hps = HParams()
    model, mix, generator, skipped = train(hps)
    finite = all(torch.isfinite(p).all().item() for p in model.parameters())
    print(f"skipped under a tenth {skipped < hps.train_steps // 10} finite {finite}")
    print(f"validation loss {evaluate(hps, model, mix, generator):.3f}")


if __name__ == "__main__":
    main()
