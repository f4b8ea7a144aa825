"""
title: Episodes kept as uint8 until the batch is divided by 255 train the same probe
expect: clean
thread: https://github.com/mila-iqia/atari-representation-learning/pull/49
measured: train loss 0.000 test accuracy 1.00  (with the suspect widened: train loss 0.000 test accuracy 1.00)
suspect: 37 lossless

Expectation, written first: The frames of all episodes are cast to uint8, which looks like a cut to eight bits and an invitation to wrap around. The emulator's pixels are
whole numbers from 0 to 255 anyway, and the first operation is a true division that promotes to float32, so loss and accuracy are those of
float32 episodes.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PongLikeEnv:
    def __init__(self, size=16, seed=0):
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)

    def rollout(self, steps):
        frames, labels = [], []
        for _ in range(steps):
            ball = int(torch.randint(0, self.size - 1, (1,), generator=self.generator))
            frame = torch.randint(30, 90, (1, self.size, self.size), generator=self.generator).float()
            frame[:, :, ball:ball + 2] = 236.0
            frames.append(frame)
            labels.append(ball)
        return torch.stack(frames), torch.tensor(labels)


def get_random_agent_rollouts(num_episodes, steps):
    episodes, labels = [], []
    for episode in range(num_episodes):
        frames, ball_x = PongLikeEnv(seed=episode).rollout(steps)
        episodes.append(frames.to(torch.uint8))
        labels.append(ball_x)
    return episodes, labels


class NatureCNN(nn.Module):
    def __init__(self, size=16, feature_size=32):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, feature_size))

    def forward(self, inputs):
        return self.main(inputs / 255.0)


class ProbeTrainer:
    def __init__(self, encoder, classes=16, lr=1e-2):
        self.encoder = encoder
        self.probe = nn.Linear(32, classes)
        self.optimizer = torch.optim.Adam([*encoder.parameters(), *self.probe.parameters()], lr=lr)

    def train(self, episodes, labels, epochs):
        for _ in range(epochs):
            for frames, target in zip(episodes, labels):
                loss = F.cross_entropy(self.probe(self.encoder(frames)), target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, frames, target):
        return (self.probe(self.encoder(frames)).argmax(-1) == target).float().mean().item()


def main():
    torch.manual_seed(0)
    episodes, labels = get_random_agent_rollouts(num_episodes=7, steps=40)
    trainer = ProbeTrainer(NatureCNN())
    loss = trainer.train(episodes[:6], labels[:6], epochs=12)
    print(f"train loss {loss:.3f} test accuracy {trainer.evaluate(episodes[6], labels[6]):.2f}")


if __name__ == "__main__":
    main()
