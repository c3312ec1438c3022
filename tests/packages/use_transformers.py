import contextlib
import io

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

set_seed(0)
config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
tokens = torch.randint(0, 32, (12, 8), generator=torch.Generator().manual_seed(1))
rows = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    "out", max_steps=4, per_device_train_batch_size=4, logging_steps=2, report_to=[], save_steps=2, seed=0,
    disable_tqdm=True, use_cpu=True,
)  # fmt: skip
trainer = Trainer(model, arguments, train_dataset=rows)
with contextlib.redirect_stdout(io.StringIO()):  # it prints how long it took
    loss = trainer.train().training_loss
print(loss, sorted(entry["loss"] for entry in trainer.state.log_history if "loss" in entry))
print(model.eval().generate(tokens[:1, :3], max_new_tokens=4, do_sample=True, pad_token_id=0).tolist())
