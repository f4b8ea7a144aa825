"""
title: the environment step counter turns negative after two billion steps and logging goes backwards
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/google-deepmind/mujoco_playground/issues/48
measured: logged steps [666869760, 1333739520, 2000609280] ignored 4 | env_steps 373121024 episodes 3499 lr 2.78e-04
widened: logged steps [666869760, 1333739520, 2000609280, 2667479040, 3334348800, 4001218560, 4668088320] ignored 0 | env_steps 4668088320 episodes 3499 lr 1.99e-05; innocent: logged steps [666869760, 1333739520, 2000609280] ignored 4 | env_steps 373121024 episodes 3499 lr 2.78e-04
suspect: line 23 - innocent: the counter of finished episodes ends in the thousands, int32 is ample for it

Expectation, written first: the training state holds env_steps as an int32 tensor and adds 666894336 per evaluation
period. The fourth addition passes 2**31 - 1 and wraps to a negative number; the schedule that reads the counter sees
negative progress. The episode counter has the same type and is small.
"""
from dataclasses import dataclass, field

import torch

NUM_TIMESTEPS = 5_000_000_000


@dataclass
class TrainingState:
    env_steps: torch.Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int32))  # BORN
    episodes: torch.Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int32))


class MetricsLogger:
    def __init__(self):
        self.rows = []
        self.ignored = 0

    def log(self, step, **metrics):
        if self.rows and step <= self.rows[-1][0]:
            self.ignored += 1
            return
        self.rows.append((step, metrics))


class FakeEnv:
    def __init__(self, num_envs, seed=0):
        self.num_envs = num_envs
        self.gen = torch.Generator().manual_seed(seed)
        self.level = 0.0

    def rollout(self):
        self.level += 0.5
        rewards = self.level + 0.1 * torch.randn(self.num_envs, generator=self.gen)
        done = torch.rand(self.num_envs, generator=self.gen) < 0.25
        return rewards, done


def training_epoch(state, env, env_steps_per_epoch):
    rewards, done = env.rollout()
    state.env_steps += env_steps_per_epoch  # BORN
    state.episodes += done.sum()
    return rewards.mean()


def learning_rate(state, base=3e-4):
    progress = state.env_steps / NUM_TIMESTEPS
    return float(base * (1.0 - progress).clamp(min=0.0))


def train(num_evals=7, num_envs=2048, unroll_length=30, batches=10854):
    state, logger = TrainingState(), MetricsLogger()
    env = FakeEnv(num_envs)
    per_epoch = num_envs * unroll_length * batches
    for _ in range(num_evals):
        reward = training_epoch(state, env, per_epoch)
        logger.log(int(state.env_steps), reward=round(float(reward), 2))
    return state, logger


def main():
    state, logger = train()
    print("logged steps", [step for step, _ in logger.rows], "ignored", logger.ignored)
    print(f"env_steps {int(state.env_steps)} episodes {int(state.episodes)} lr {learning_rate(state):.2e}")


if __name__ == "__main__":
    main()
