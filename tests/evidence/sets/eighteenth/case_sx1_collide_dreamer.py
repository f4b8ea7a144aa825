"""
title: imagined rewards under autocast are scattered into a float32 rollout buffer
expect: collision
thread: https://github.com/pytorch/rl/issues/1703

Expectation, written first: the whole Dreamer update runs under autocast, so the reward head gives bfloat16 for the
states that are still alive. The masked write goes into a buffer made by torch.zeros in float32; masked_scatter_ does
not promote and refuses the pair. The rewards or the buffer must be cast.
"""
import torch
import torch.nn as nn


class RSSMPrior(nn.Module):
    def __init__(self, action_dim, state_dim, hidden_dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(action_dim + state_dim, hidden_dim), nn.ELU())
        self.rnn_to_state = nn.Linear(hidden_dim, 2 * state_dim)

    def forward(self, state, action):
        mean, scale = self.rnn_to_state(self.net(torch.cat([state, action], -1))).chunk(2, -1)
        return mean + nn.functional.softplus(scale) * torch.randn_like(mean)


class DreamerActor(nn.Module):
    def __init__(self, state_dim, action_dim, hidden_dim):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(state_dim, hidden_dim), nn.ELU(), nn.Linear(hidden_dim, action_dim))

    def forward(self, state):
        return torch.tanh(self.backbone(state))


class DreamerEnv:
    def __init__(self, prior, reward_model, continue_model, horizon):
        self.prior, self.reward_model, self.continue_model = prior, reward_model, continue_model
        self.horizon = horizon

    def rollout(self, policy, state):
        batch = state.shape[0]
        rewards = torch.zeros(self.horizon, batch)  # BORN
        alive = torch.ones(batch, dtype=torch.bool)
        states = []
        for t in range(self.horizon):
            state = self.prior(state, policy(state))
            reward = self.reward_model(state[alive]).squeeze(-1)  # BORN
            rewards[t].masked_scatter_(alive, reward)  # BORN COLLIDES
            alive = alive & (self.continue_model(state).squeeze(-1) > -2.0)
            states.append(state)
        return torch.stack(states), rewards


def lambda_return(rewards, values, gamma=0.99, lmbda=0.95):
    out, last = [], values[-1]
    for r, v in zip(reversed(rewards), reversed(values)):
        last = r + gamma * ((1 - lmbda) * v + lmbda * last)
        out.append(last)
    return torch.stack(out[::-1])


class DreamerActorLoss(nn.Module):
    def __init__(self, actor, value_model, env):
        super().__init__()
        self.actor, self.value_model, self.env = actor, value_model, env

    def forward(self, state):
        states, rewards = self.env.rollout(self.actor, state)
        values = self.value_model(states).squeeze(-1)
        return {"loss_actor": -lambda_return(rewards, values).mean()}


def make_dreamer(state_dim=12, action_dim=3, hidden=24):
    head = lambda: nn.Sequential(nn.Linear(state_dim, hidden), nn.ELU(), nn.Linear(hidden, 1))
    env = DreamerEnv(RSSMPrior(action_dim, state_dim, hidden), head(), head(), horizon=5)
    return DreamerActorLoss(DreamerActor(state_dim, action_dim, hidden), head(), env)


if __name__ == "__main__":
    torch.manual_seed(0)
    actor_loss = make_dreamer()
    actor_opt = torch.optim.Adam(actor_loss.actor.parameters(), lr=8e-5)
    for frame in range(2):
        posterior_state = torch.randn(16, 12)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            actor_loss_td = actor_loss(posterior_state)
        actor_loss_td["loss_actor"].backward()
        actor_opt.step()
        actor_opt.zero_grad()
        print(frame, actor_loss_td["loss_actor"].item())
