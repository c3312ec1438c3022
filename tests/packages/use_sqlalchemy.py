import datetime

import sqlalchemy as sa
import torch
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Measurement(Base):
    __tablename__ = "measurements"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    value: Mapped[float]
    at: Mapped[datetime.datetime] = mapped_column(sa.DateTime)


engine = sa.create_engine("sqlite:///rows.db")
Base.metadata.drop_all(engine)
Base.metadata.create_all(engine)
with Session(engine) as session:
    start = datetime.datetime(2024, 1, 1)
    session.add_all(
        Measurement(name="ab"[n % 2], value=n / 8, at=start + datetime.timedelta(days=n)) for n in range(16)
    )
    session.commit()
    query = sa.select(Measurement.name, sa.func.sum(Measurement.value), sa.func.max(Measurement.at))
    print(session.execute(query.group_by(Measurement.name).order_by(Measurement.name)).all())
    values = session.scalars(sa.select(Measurement.value).order_by(Measurement.id)).all()
torch.manual_seed(0)
print(torch.nn.Linear(16, 1)(torch.tensor(values)).item())
