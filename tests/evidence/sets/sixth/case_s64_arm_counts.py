"""
title: a bandit counts its pulls in float16 and no longer counts after 2048; its rewards of zero or one are kept as int8
expect: silent:lost-update|precision-loss|downcast
"""
import torch

torch.manual_seed(903)


class Ucb:
    def __init__(self, arms):
        self.pulls = torch.zeros(arms, dtype=torch.float16)  # BORN
        self.wins = torch.zeros(arms)

    def choose(self, t):
        count = self.pulls.float()
        if (count == 0).any():
            return int((count == 0).nonzero()[0])
        bonus = (2 * torch.log(torch.tensor(float(t))) / count).sqrt()
        return int((self.wins / count + 0.5 * bonus).argmax())

    def learn(self, arm, reward):
        reward = reward.to(torch.int8)
        self.pulls[arm] += 1
        self.wins[arm] += reward


class Machine:
    def __init__(self, chances):
        self.chances = torch.tensor(chances)

    def pull(self, arm):
        return (torch.rand(()) < self.chances[arm]).float()


machine, bandit = Machine([0.3, 0.5, 0.4]), Ucb(3)
for t in range(1, 6001):
    arm = bandit.choose(t)
    bandit.learn(arm, machine.pull(arm))
value = bandit.wins / bandit.pulls.float()
print("best arm is worth", round(value[1].item(), 3), "of 0.5; pulls", int(bandit.pulls.float().sum()), "of 6000")
