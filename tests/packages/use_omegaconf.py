from dataclasses import dataclass, field

import torch
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import MissingMandatoryValue, ValidationError


@dataclass
class Model:
    width: int = 8
    name: str = MISSING


@dataclass
class Train:
    lr: float = 0.1
    model: Model = field(default_factory=Model)


OmegaConf.register_new_resolver("double", lambda value: 2 * value)
config = OmegaConf.merge(OmegaConf.structured(Train), {"lr": 0.2}, OmegaConf.from_dotlist(["model.width=4"]))
more = OmegaConf.create({"a": 3, "b": "${a}", "c": "${double:${a}}"})
print(OmegaConf.to_yaml(config), more.b, more.c, OmegaConf.to_container(more, resolve=True))
for name, value in (("lr", "high"), ("read", None)):
    try:
        if value:
            config[name] = value
        print(config.model.name)
    except (ValidationError, MissingMandatoryValue) as error:
        print(type(error).__name__)
torch.manual_seed(0)
print(torch.nn.Linear(config.model.width, 1)(torch.ones(config.model.width)).item() * config.lr)
