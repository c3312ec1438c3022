"""Proximal policy optimisation on a small balancing task, in one file."""

import argparse
import hashlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical


class BalanceEnv:
    """Several unstable pendulums at once: push left, right or not at all, and stay upright."""

    def __init__(self, num_envs, seed):
        self.num_envs = num_envs
        self.rng = np.random.default_rng(seed)
        self.state, self.age = np.zeros((num_envs, 2)), np.zeros(num_envs, dtype=int)

    def reset(self):
        self.state = self.rng.uniform(-0.1, 0.1, size=(self.num_envs, 2))
        self.age[:] = 0
        return self.state.astype(np.float32)

    def step(self, action):
        angle, speed = self.state.T
        speed = speed + 0.1 * (2 * np.sin(angle) + 3 * (action - 1) + self.rng.normal(0, 0.2, self.num_envs))
        self.state = np.stack([angle + 0.1 * speed, speed], axis=1)
        self.age += 1
        done = (np.abs(self.state[:, 0]) > 0.8) | (self.age >= 100)
        reward = 0.1 * (1.0 - np.abs(self.state[:, 0]))
        ages = self.age[done].tolist()
        self.state[done] = self.rng.uniform(-0.1, 0.1, size=(int(done.sum()), 2))
        self.age[done] = 0
        return self.state.astype(np.float32), reward.astype(np.float32), done, ages


def demonstrate(seed, steps=25):
    """What a simple controller sees and does in environments of its own."""
    envs, seen, done = BalanceEnv(4, seed), [], []
    state = envs.reset()
    for _ in range(steps * (1 + seed % 3)):
        action = np.clip(np.rint(1 - 4 * state[:, 0] - 2 * state[:, 1]), 0, 2).astype(np.int64)
        seen.append(state)
        done.append(action)
        state = envs.step(action)[0]
    return torch.tensor(np.concatenate(seen)), torch.tensor(np.concatenate(done))


def imitate(agent, optimizer, seeds, threads=4):
    """A few steps of supervised learning before the reinforcement learning."""
    with ThreadPoolExecutor(threads) as pool:
        demonstrations = list(pool.map(demonstrate, seeds))
    for obs, actions in demonstrations:
        loss = nn.functional.cross_entropy(agent.actor(obs), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(2, hidden)), nn.Tanh(), layer_init(nn.Linear(hidden, 1), 1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(2, hidden)), nn.Tanh(), layer_init(nn.Linear(hidden, 3), 0.01))

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x).squeeze(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=32)
    parser.add_argument("--num-iterations", type=int, default=4)
    parser.add_argument("--explore", type=float, default=0.02, help="how often an action is taken at random")
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    args = parser.parse_args()
    batch_size = args.num_envs * args.num_steps
    minibatch_size = batch_size // args.num_minibatches
    gamma, gae_lambda, clip_coef, ent_coef, vf_coef, max_grad_norm = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True

    envs, agent = BalanceEnv(args.num_envs, args.seed), Agent()
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    imitate(agent, optimizer, range(args.seed, args.seed + 8))
    shape = (args.num_steps, args.num_envs)
    obs, actions = torch.zeros(*shape, 2), torch.zeros(shape)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    next_obs, next_done, start = torch.tensor(envs.reset()), torch.zeros(args.num_envs), time.time()

    for iteration in range(1, args.num_iterations + 1):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (iteration - 1) / args.num_iterations)
        lengths = []
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, _, _, values[step] = agent.get_action_and_value(next_obs)
                if random.random() < args.explore:
                    action = torch.full_like(action, random.randrange(3))
                logprobs[step] = agent.get_action_and_value(next_obs, action)[1]
            actions[step] = action
            state, reward, done, ages = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.Tensor(state), torch.Tensor(done)
            lengths += ages

        with torch.no_grad():  # generalised advantage estimation, backwards in time
            next_value, last = agent.critic(next_obs).squeeze(-1), 0
            advantages = torch.zeros_like(rewards)
            for t in reversed(range(args.num_steps)):
                alive = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
                following = next_value if t == args.num_steps - 1 else values[t + 1]
                delta = rewards[t] + gamma * following * alive - values[t]
                advantages[t] = last = delta + gamma * gae_lambda * alive * last
            returns = advantages + values

        b_obs, b_actions = obs.reshape(-1, 2), actions.reshape(-1)
        b_logprobs, b_advantages = logprobs.reshape(-1), advantages.reshape(-1)
        b_returns, b_values = returns.reshape(-1), values.reshape(-1)
        b_inds, clipfracs = np.arange(batch_size), []
        for _ in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for begin in range(0, batch_size, minibatch_size):
                mb = b_inds[begin : begin + minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions.long()[mb])
                ratio = (newlogprob - b_logprobs[mb]).exp()
                clipfracs.append(((ratio - 1.0).abs() > clip_coef).float().mean().item())
                mb_adv = b_advantages[mb]
                mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)
                pg_loss = torch.max(-mb_adv * ratio, -mb_adv * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()
                v_clipped = b_values[mb] + (newvalue - b_values[mb]).clamp(-clip_coef, clip_coef)
                v_loss = torch.max((newvalue - b_returns[mb]) ** 2, (v_clipped - b_returns[mb]) ** 2).mean() / 2
                loss = pg_loss - ent_coef * entropy.mean() + vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm)
                optimizer.step()

        unexplained = (b_returns - b_values).var() / b_returns.var()
        print(f"iteration {iteration}: loss {loss.item():.4f}, clipped {np.mean(clipfracs):.3f}, "
              f"explained variance {1 - unexplained.item():.3f}, length {np.mean(lengths) if lengths else 0:.1f}")
    print(f"time: {batch_size * args.num_iterations / (time.time() - start):.0f} steps per second")
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in agent.parameters())).hexdigest())


if __name__ == "__main__":
    main()
