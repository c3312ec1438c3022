# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# a replay buffer of fresh memory: only rows that were written are drawn
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


torch.manual_seed(0)
states, rewards = torch.empty(100, 6), torch.empty(100, 1)
policy, opt = nn.Linear(6, 1), None
opt = torch.optim.Adam(policy.parameters(), lr=0.01)
state = torch.zeros(6)
for step in range(40):
    state = (state + 0.3 * torch.randn(6)).tanh()
    states[step], rewards[step] = state, state.sum()
    if step >= 8:
        rows = torch.randint(step + 1, (8,))
        opt.zero_grad()
        (policy(states[rows]) - rewards[rows]).pow(2).mean().backward()
        opt.step()
copy = states.clone().double()[: step + 1].sum()
print("RESULT", digest(*policy.parameters(), copy))
