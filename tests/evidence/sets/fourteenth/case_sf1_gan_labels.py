"""
title: the labels of a DCGAN discriminator are filled with the integer 1
expect: collision
thread: https://github.com/pytorch/pytorch/issues/45373
fix_at: 38, 51, 52

Expectation, written first: torch.full takes its type from the fill value, so the labels are int64; the binary
cross entropy wants a target of the type of its input and refuses.
"""
import torch
from torch import nn, optim


class Generator(nn.Module):
    def __init__(self, nz=8, ngf=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1)


real_label, fake_label = 1, 0  # BORN


class Trainer:
    def __init__(self, nz=8):
        self.nz = nz
        self.net_g, self.net_d = Generator(nz), Discriminator()
        self.criterion = nn.BCELoss()
        self.opt_g = optim.Adam(self.net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.opt_d = optim.Adam(self.net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def step(self, real):
        self.net_d.zero_grad()
        label = torch.full((len(real),), real_label)  # BORN
        err_real = self.criterion(self.net_d(real), label)  # COLLIDES
        err_real.backward()
        fake = self.net_g(torch.randn(len(real), self.nz, 1, 1))
        label.fill_(fake_label)
        err_fake = self.criterion(self.net_d(fake.detach()), label)
        err_fake.backward()
        self.opt_d.step()
        self.net_g.zero_grad()
        label.fill_(real_label)
        err_g = self.criterion(self.net_d(fake), label)
        err_g.backward()
        self.opt_g.step()
        return (err_real + err_fake).item(), err_g.item()


def main():
    torch.manual_seed(999)
    trainer = Trainer()
    for k in range(3):
        d, g = trainer.step(torch.rand(6, 1, 8, 8) * 2 - 1)
    print(f"loss_d {d:.4f} loss_g {g:.4f}")


main()
