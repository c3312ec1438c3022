import datetime
import itertools
import uuid

import pydantic
import torch


class Settings(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    lr: pydantic.PositiveFloat = 0.1
    started: datetime.datetime
    limit: datetime.timedelta = datetime.timedelta(minutes=5)
    run: uuid.UUID
    day: datetime.date | None = None
    layers: list[int] = pydantic.Field(default_factory=lambda: [4, 8, 1])

    @pydantic.field_validator("layers")
    @classmethod
    def need_two(cls, layers):
        if len(layers) < 2:
            raise ValueError("at least two layers")
        return layers


text = '{"name": "a", "started": "2024-02-03T04:05:06Z", "run": "12345678-1234-5678-1234-567812345678"}'
settings = Settings.model_validate_json(text)
print(settings, settings.model_dump_json(), Settings.model_json_schema()["required"])
print(Settings(name="b", started=datetime.datetime(2024, 1, 1), run=uuid.UUID(int=5), day=datetime.date(2024, 1, 1)))
try:
    Settings(name="c", started="yesterday", run="x", layers=[1])
except pydantic.ValidationError as error:
    print(error.error_count(), [one["type"] for one in error.errors()])
torch.manual_seed(0)
sizes = settings.layers
model = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))
print(model(torch.ones(1, sizes[0])).item())
