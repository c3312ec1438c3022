import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
words = ["the same bits or the first operation", "a run and the same run again", "the first run differs"] * 4
tokenizer.train_from_iterator(words, trainers.BpeTrainer(vocab_size=60, special_tokens=["[UNK]"], show_progress=False))
tokenizer.save("tokenizer.json")
tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_padding()
encoded = tokenizer.encode_batch(words[:3])
print(encoded[0].tokens, tokenizer.decode(encoded[1].ids), tokenizer.get_vocab_size())
torch.manual_seed(0)
model = torch.nn.EmbeddingBag(60, 4)
print(model(torch.tensor([one.ids for one in encoded])).sum().item())
