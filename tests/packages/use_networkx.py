import networkx as nx
import torch

graph = nx.gnp_random_graph(20, 0.3, seed=4)
print(graph.number_of_edges(), nx.density(graph), nx.shortest_path(graph, 0, 7))
print({node: round(rank, 12) for node, rank in list(nx.pagerank(graph).items())[:4]})
print([sorted(part) for part in nx.community.louvain_communities(graph, seed=1)])
print(nx.spring_layout(graph, seed=2)[0])
torch.manual_seed(0)
adjacency = torch.tensor(nx.to_numpy_array(graph)).float()
features = torch.nn.Parameter(torch.randn(20, 4))
loss = (adjacency @ features).square().mean()
loss.backward()
print(loss.item(), features.grad.sum().item())
