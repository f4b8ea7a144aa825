"""
title: Half precision network with float32 master weights and a loss scale
expect: clean
thread: https://github.com/LeelaChessZero/lczero-training/pull/89
measured: step 15 policy=2.0 value=1.0 finite=True / step 30 policy=1.8 value=0.8 finite=True / step 45 policy=1.0 value=0.5 finite=True
suspect: 44 meant (the copy for the forward pass; the updates go to the float32 masters)

Expectation, written first: Forward and backward run in float16 on a copy of the weights, the losses in float32 and scaled by 128,
the gradients are unscaled in float32 and applied to float32 masters. Every small update arrives; the losses are those of
single precision in the printed digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ChessNet(nn.Module):
    def __init__(self, planes, filters, moves):
        super().__init__()
        self.conv_in = nn.Conv2d(planes, filters, 3, padding=1)
        self.conv_res = nn.Conv2d(filters, filters, 3, padding=1)
        self.policy = nn.Linear(filters * 16, moves)
        self.value = nn.Linear(filters * 16, 3)

    def forward(self, x):
        x = F.relu(self.conv_in(x))
        x = F.relu(x + self.conv_res(x)).flatten(1)
        return self.policy(x), self.value(x)


class TFProcess:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model_dtype = torch.float16 if cfg["precision"] == "half" else torch.float32
        self.loss_scale = cfg["loss_scale"] if cfg["precision"] == "half" else 1.0
        self.master = ChessNet(cfg["planes"], cfg["filters"], cfg["moves"])
        self.net = ChessNet(cfg["planes"], cfg["filters"], cfg["moves"]).to(self.model_dtype)
        self.optimizer = torch.optim.SGD(self.master.parameters(), lr=cfg["lr"], momentum=0.9, nesterov=True)
        self.sync()

    @torch.no_grad()
    def sync(self):
        for p, m in zip(self.net.parameters(), self.master.parameters()):
            p.copy_(m)

    def losses(self, planes, pi, z):
        policy, value = self.net(planes.to(self.model_dtype))
        policy_loss = F.cross_entropy(policy.float(), pi)
        value_loss = F.cross_entropy(value.float(), z)
        return policy_loss, value_loss

    def process_inner_loop(self, batch):
        self.net.zero_grad()
        policy_loss, value_loss = self.losses(*batch)
        ((policy_loss + self.cfg["value_weight"] * value_loss) * self.loss_scale).backward()
        for p, m in zip(self.net.parameters(), self.master.parameters()):
            m.grad = p.grad.float() / self.loss_scale
        grad_norm = nn.utils.clip_grad_norm_(self.master.parameters(), self.cfg["max_grad_norm"])
        self.optimizer.step()
        self.sync()
        return policy_loss.item(), value_loss.item(), grad_norm.item()


def make_positions(n, cfg, generator):
    planes = (torch.rand(n, cfg["planes"], 4, 4, generator=generator) < 0.25).float()
    moves = planes.flatten(1)[:, :cfg["moves"]]
    pi = (moves + 0.01 * torch.arange(cfg["moves"])).argmax(dim=1)
    balance = planes[:, 0].sum(dim=(1, 2)) - planes[:, 1].sum(dim=(1, 2))
    return planes, pi, (balance.sign() + 1).long()


def main():
    torch.manual_seed(89)
    cfg = dict(precision="half", loss_scale=128.0, planes=4, filters=16, moves=12, lr=0.02,
               value_weight=1.0, max_grad_norm=5.0, batch_size=64, steps=45)
    tfprocess = TFProcess(cfg)
    generator = torch.Generator().manual_seed(89)
    data = make_positions(512, cfg, generator)
    for step in range(1, cfg["steps"] + 1):
        idx = torch.randint(0, 512, (cfg["batch_size"],), generator=generator)
        policy_loss, value_loss, grad_norm = tfprocess.process_inner_loop([t[idx] for t in data])
        if step % 15 == 0:
            print(f"step {step} policy={policy_loss:.1f} value={value_loss:.1f} finite={grad_norm < 1e3}")


if __name__ == "__main__":
    main()
