"""
title: torch.full of integer real and fake labels for BCELoss
expect: collision
thread: https://github.com/AKASHKADEL/dcgan-mnist/pull/2
fix_at: (none beside the marked)

Expectation, written first: real_label = 1 and fake_label = 0 are Python ints, torch.full takes its dtype from the
fill value and gives Long labels. BCELoss of the float32 probabilities refuses a Long target.
"""
import torch
import torch.nn as nn
import torch.optim as optim


class Generator(nn.Module):
    def __init__(self, nz, ngf, nc):
        super().__init__()
        self.network = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.network(input)


class Discriminator(nn.Module):
    def __init__(self, nc, ndf):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.network(input).view(-1)


def weights_init(m):
    if "Conv" in type(m).__name__:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif "BatchNorm" in type(m).__name__:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


real_label = 1  # BORN
fake_label = 0


def main(batch_size=8, nz=12, niter=2):
    torch.manual_seed(2)
    netG, netD = Generator(nz, 8, 1), Discriminator(1, 8)
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
    dataset = torch.rand(16, 1, 16, 16) * 2 - 1
    for epoch in range(niter):
        for real in dataset.split(batch_size):
            netD.zero_grad()
            label = torch.full((len(real),), real_label)  # BORN
            output = netD(real)
            lossD_real = criterion(output, label)  # COLLIDES
            lossD_real.backward()
            fake = netG(torch.randn(len(real), nz, 1, 1))
            label.fill_(fake_label)
            lossD_fake = criterion(netD(fake.detach()), label)
            lossD_fake.backward()
            optimizerD.step()

            netG.zero_grad()
            label.fill_(real_label)
            lossG = criterion(netD(fake), label)
            lossG.backward()
            optimizerG.step()
        print(f"[{epoch}/{niter}] Loss_D: {(lossD_real + lossD_fake).item():.4f} Loss_G: {lossG.item():.4f}")


if __name__ == "__main__":
    main()
