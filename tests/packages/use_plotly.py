import plotly.graph_objects as go
import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 2)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = (model(x) - x[:, :1]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
figure = go.Figure(go.Scatter(y=losses, name="loss"))
figure.update_layout(title="losses", template="plotly_white")
print(figure.to_json()[:120], len(figure.to_html(include_plotlyjs=False, div_id="losses")), losses)
