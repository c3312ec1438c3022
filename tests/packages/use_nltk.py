import nltk
import torch
from nltk.stem import PorterStemmer
from nltk.tokenize import RegexpTokenizer

words = RegexpTokenizer(r"\w+").tokenize("Runs that run the same running run differ from runs of another run.")
stems = [PorterStemmer().stem(word) for word in words]
counts = nltk.FreqDist(stems)
grammar = nltk.CFG.fromstring("S -> N V\nN -> 'runs'\nV -> 'differ'")
print(stems, counts.most_common(3), list(nltk.bigrams(stems))[:3], nltk.edit_distance("same", "seem"))
print(next(iter(nltk.ChartParser(grammar).parse(["runs", "differ"]))))
names = sorted(counts)
torch.manual_seed(0)
print(torch.nn.EmbeddingBag(len(names), 3)(torch.tensor([[names.index(stem) for stem in stems]])).tolist())
