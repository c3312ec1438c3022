import gymnasium
import torch

torch.manual_seed(0)
envs = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
observation, _ = envs.reset(seed=5)
policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
total = 0.0
for _ in range(30):
    distribution = torch.distributions.Categorical(logits=policy(torch.tensor(observation)))
    action = distribution.sample()
    observation, reward, _terminated, _truncated, _ = envs.step(action.numpy())
    loss = -(distribution.log_prob(action) * torch.tensor(reward)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += float(reward.sum())
print(total, observation.tolist(), loss.item())
one = gymnasium.make("MountainCarContinuous-v0")
print(one.reset(seed=1)[0], one.action_space.shape, envs.single_observation_space)
