import io

import sentencepiece
import torch

text = ["the same bits or the first operation", "a run and the same run again", "the first run differs"] * 20
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(text), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
ids = processor.encode(text[:2])
print(ids, processor.decode(ids[0]), processor.encode("first run", out_type=str), processor.vocab_size())
torch.manual_seed(0)
print(torch.nn.Embedding(64, 4)(torch.tensor(ids[0])).sum().item())
