import logging
import os

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
import ray
import torch

ray.init(
    num_cpus=1, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
    object_store_memory=80 * 2**20, _node_ip_address="127.0.0.1",
)  # fmt: skip


@ray.remote
def train(seed):
    torch.manual_seed(seed)
    x = torch.randn(16, 4)
    model = torch.nn.Linear(4, 1)
    model(x).square().mean().backward()
    return model.weight.grad


gradients = ray.get([train.remote(seed) for seed in range(3)])
print(torch.stack(gradients).sum().item(), ray.get(ray.put([1, 2])))
ray.shutdown()
