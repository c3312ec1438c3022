import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

torch_geometric.seed_everything(0)
edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
graphs = [Data(x=torch.randn(5, 3), edge_index=edges, y=torch.tensor([n % 2])) for n in range(12)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = GCNConv(3, 8), torch.nn.Linear(8, 2)

    def forward(self, batch):
        return self.out(global_mean_pool(self.conv(batch.x, batch.edge_index).relu(), batch.batch))


model = Net()
optimizer = torch.optim.Adam(model.parameters())
for batch in DataLoader(graphs, batch_size=4, shuffle=True):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
    loss.backward()
    optimizer.step()
print(loss.item(), torch_geometric.utils.to_dense_adj(edges).sum().item())
