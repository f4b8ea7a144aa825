"""
title: a policy evaluated in bf16 acts like its fp32 master, with advantages and updates kept in fp32
expect: clean
thread: https://github.com/PufferAI/PufferLib/pull/479
measured: episode return 68.781, mean advantage 10.890 ; all in fp32: episode return 68.781, mean advantage 10.890
suspect: 38 margin (logits are bf16, but the best action leads by far more than a bf16 step, so the argmax is the same)

Expectation, written first: the working copy of the policy is bf16 and is synced from fp32 masters; actions are the argmax of bf16 logits with
wide margins. Returns and advantages are taken in fp32, so episode return and mean advantage are those of a wide policy.
"""
import torch
import torch.nn as nn


class Policy(nn.Module):
    def __init__(self, n_obs, n_actions):
        super().__init__()
        self.actor = nn.Linear(n_obs, n_actions, bias=False)

    def forward(self, obs):
        return self.actor(obs)


class MixedPrecisionPolicy:
    def __init__(self, master, compute_dtype):
        self.master = master
        self.compute_dtype = compute_dtype
        self.working = Policy(master.actor.in_features, master.actor.out_features).to(compute_dtype)
        self.sync()

    @torch.no_grad()
    def sync(self):
        for w, m in zip(self.working.parameters(), self.master.parameters()):
            w.copy_(m)

    @torch.no_grad()
    def act(self, obs):
        logits = self.working(obs.to(self.compute_dtype))
        return logits.argmax(-1)


def compute_gae(rewards, values, gamma=0.99, lam=0.95):
    advantages = torch.zeros_like(rewards)
    last = torch.zeros(rewards.shape[1])
    for t in reversed(range(rewards.shape[0] - 1)):
        delta = rewards[t] + gamma * values[t + 1] - values[t]
        last = delta + gamma * lam * last
        advantages[t] = last
    return advantages


def rollout(policy, horizon, envs, n_actions):
    generator = torch.Generator().manual_seed(2)
    rewards = torch.zeros(horizon, envs)
    for t in range(horizon):
        goal = torch.randint(0, n_actions, (envs,), generator=generator)
        obs = nn.functional.one_hot(goal, n_actions).float() + 0.02 * torch.randn(envs, n_actions, generator=generator)
        rewards[t] = (policy.act(obs) == (goal + 1) % n_actions).float() * (1.0 + 0.5 * (goal == 0))
    return rewards


def main():
    torch.manual_seed(0)
    master = Policy(6, 6)
    with torch.no_grad():
        master.actor.weight.copy_(4.0 * torch.roll(torch.eye(6), 1, 0) + 0.05 * torch.randn(6, 6))
    policy = MixedPrecisionPolicy(master, torch.bfloat16)
    rewards = rollout(policy, horizon=64, envs=16, n_actions=6)
    advantages = compute_gae(rewards, torch.full_like(rewards, 20.0))
    print(f"episode return {rewards.sum(0).mean():.3f}, mean advantage {advantages.mean():.3f}")


if __name__ == "__main__":
    main()
