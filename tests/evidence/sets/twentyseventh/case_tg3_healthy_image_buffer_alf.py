"""
title: The replay buffer keeps images as uint8
expect: clean
thread: https://github.com/HorizonRobotics/alf/issues/237
measured: buffer bytes 65536 pixel values [16, 128, 255] / loss 0.01 caught 5 of 20
suspect: 53 (float32 to uint8, but the values are whole numbers from 0 to 255)

Expectation, written first: The wrapped environment hands out float32 images whose values are the pixels 0..255.
Stored as uint8 they come back unchanged, as the images are whole numbers; the division by 255 is done in
float32 after sampling. Nothing is lost, a quarter of the memory is used.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CatchEnv:
    """A ball falls on an 8x8 board, the paddle below has to be where it lands."""

    def __init__(self, size=8, seed=237):
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.ball = [0, int(torch.randint(self.size, (1,), generator=self.generator))]
        self.paddle = self.size // 2
        return self._render()

    def _render(self):
        image = torch.full((1, self.size, self.size), 16.0)
        image[0, self.ball[0], self.ball[1]] = 255.0
        image[0, -1, self.paddle] = 128.0
        return image

    def step(self, action):
        self.paddle = min(max(self.paddle + action - 1, 0), self.size - 1)
        self.ball[0] += 1
        done = self.ball[0] == self.size - 1
        reward = float(done and self.ball[1] == self.paddle)
        return self._render(), reward, done


class ReplayBuffer:
    def __init__(self, capacity, image_spec):
        self.images = torch.zeros(capacity, *image_spec, dtype=torch.uint8)
        self.next_images = torch.zeros(capacity, *image_spec, dtype=torch.uint8)
        self.actions = torch.zeros(capacity, dtype=torch.int64)
        self.rewards = torch.zeros(capacity)
        self.dones = torch.zeros(capacity)
        self.capacity, self.pos, self.size = capacity, 0, 0

    def add(self, image, action, reward, next_image, done):
        self.images[self.pos] = image.to(torch.uint8)
        self.next_images[self.pos] = next_image.to(torch.uint8)
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action, reward, float(done)
        self.pos = (self.pos + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        i = torch.randint(self.size, (batch_size,))
        return (self.images[i].float() / 255, self.actions[i], self.rewards[i],
                self.next_images[i].float() / 255, self.dones[i])


class QNetwork(nn.Module):
    def __init__(self, size, actions):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 64), nn.ReLU(), nn.Linear(64, actions))

    def forward(self, image):
        return self.net(image)


def play(env, policy, episodes, buffer=None):
    caught = 0
    for _ in range(episodes):
        image, done = env.reset(), False
        while not done:
            action = policy(image)
            next_image, reward, done = env.step(action)
            if buffer is not None:
                buffer.add(image, action, reward, next_image, done)
            image = next_image
        caught += int(reward)
    return caught


def main():
    torch.manual_seed(237)
    env, buffer, q_net = CatchEnv(), ReplayBuffer(1024, (1, 8, 8)), QNetwork(8, 3)
    optimizer = torch.optim.Adam(q_net.parameters(), lr=1e-2)
    play(env, lambda image: int(torch.randint(3, (1,))), episodes=100, buffer=buffer)
    for update in range(100):
        s, a, r, s2, d = buffer.sample(64)
        target = r + 0.9 * (1 - d) * q_net(s2).max(dim=1).values.detach()
        loss = F.smooth_l1_loss(q_net(s).gather(1, a[:, None])[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    caught = play(env, lambda image: int(q_net(image[None] / 255).argmax()), episodes=20)
    print("buffer bytes", buffer.images.nbytes, "pixel values", buffer.images[:buffer.size].unique().tolist())
    print("loss", round(loss.item(), 3), "caught", caught, "of 20")


if __name__ == "__main__":
    main()
