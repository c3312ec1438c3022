import torch
from hydra import compose, initialize_config_dir, main
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

store = ConfigStore.instance()
store.store(name="train", node={"lr": 0.1, "steps": 3, "model": {"width": 8}, "defaults": ["_self_"]})


@main(version_base=None, config_path=None, config_name="train")
def train(config: DictConfig) -> None:
    print(OmegaConf.to_yaml(config))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, config.model.width), torch.nn.Linear(config.model.width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    x = torch.randn(16, 4)
    for _ in range(config.steps):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    with open("extra.yaml", "w") as file:
        file.write("name: extra\nvalues: [1, 2]\n")
    import os

    with initialize_config_dir(os.getcwd(), version_base=None):
        print(compose("extra", overrides=["name=other"]))
    train()
