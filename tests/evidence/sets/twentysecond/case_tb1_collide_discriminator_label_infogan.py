"""
title: integer GAN labels make BCELoss fail with "Found dtype Long but expected Float"
expect: collision
thread: https://github.com/Natsu6767/InfoGAN-PyTorch/pull/8
fix_at: 56, 62, 69, 75

Expectation, written first: real_label and fake_label are Python ints, and torch.full infers an int64 label from them.
BCELoss takes only a floating target of the input's dtype and raises on the first discriminator step.
"""
import torch
from torch import nn, optim


class Generator(nn.Module):
    def __init__(self, z_dim=12, out_dim=36):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(z_dim, 32), nn.ReLU(), nn.Linear(32, out_dim), nn.Tanh())

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, in_dim=36):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(in_dim, 32), nn.LeakyReLU(0.1))

    def forward(self, x):
        return self.body(x)


class DHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc(x))


def noise_sample(n_dis_c, dis_c_dim, n_z, batch_size):
    z = torch.randn(batch_size, n_z)
    idx = torch.randint(dis_c_dim, (batch_size, n_dis_c))
    dis_c = nn.functional.one_hot(idx, dis_c_dim).float().view(batch_size, -1)
    return torch.cat((z, dis_c), dim=1), idx


def main():
    torch.manual_seed(0)
    netG, discriminator, netD = Generator(), Discriminator(), DHead()
    criterionD = nn.BCELoss()
    optimD = optim.Adam([*discriminator.parameters(), *netD.parameters()], lr=2e-4)
    optimG = optim.Adam(netG.parameters(), lr=1e-3)

    real_label = 1  # BORN
    fake_label = 0
    for i, real_data in enumerate(torch.rand(3, 16, 36)):
        b_size = real_data.size(0)
        optimD.zero_grad()
        label = torch.full((b_size,), real_label)  # BORN
        probs_real = netD(discriminator(real_data)).view(-1)
        loss_real = criterionD(probs_real, label)  # COLLIDES
        loss_real.backward()

        label.fill_(fake_label)
        noise, _ = noise_sample(1, 4, 8, b_size)
        fake_data = netG(noise)
        probs_fake = netD(discriminator(fake_data.detach())).view(-1)
        loss_fake = criterionD(probs_fake, label)
        loss_fake.backward()
        optimD.step()

        optimG.zero_grad()
        label.fill_(real_label)
        gen_loss = criterionD(netD(discriminator(fake_data)).view(-1), label)
        gen_loss.backward()
        optimG.step()
        print(f"[{i}] Loss_D {(loss_real + loss_fake).item():.4f} Loss_G {gen_loss.item():.4f}")


if __name__ == "__main__":
    main()
