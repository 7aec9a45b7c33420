"""Plain PyTorch training loops of transformers' models, for text_training_test.py."""

import contextlib
import unittest.mock

import torch
import torch.nn.functional as F
from transformers.models.llama import modeling_llama


def exact_rms_norm(self, x):
    """As in transformers, but without its rounding to float32."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


EXACT = unittest.mock.patch.object(modeling_llama.LlamaRMSNorm, "forward", exact_rms_norm)


def padded(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def batch_of(tokenizer, root=None, texts=None):
    """All rows as one batch: questions with the tokens of their answers, or texts with the next tokens."""
    if root is None:
        encodings = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        ids = [encoding.ids for encoding in encodings]
        return {"input_ids": padded([row[:-1] for row in ids], 0), "attention_mask": padded([[1] * (len(row) - 1) for row in ids], 0),
                "next": padded([row[1:] for row in ids], -100)}
    encodings, starts, ends = [], [], []
    for paragraph in root["data"][0]["paragraphs"]:
        question = paragraph["qas"][0]
        encoding = tokenizer.encode(question["question"], paragraph["context"])
        begin = question["answers"][0]["answer_start"]
        end = begin + len(question["answers"][0]["text"])
        spans = [(i, *span) for i, (span, text) in enumerate(zip(encoding.offsets, encoding.sequence_ids)) if text == 1]
        encodings.append(encoding)
        starts.append(next(i for i, first, _ in spans if first == begin))
        ends.append(next(i for i, _, last in spans if last == end))
    return {"input_ids": padded([e.ids for e in encodings], 0), "token_type_ids": padded([e.type_ids for e in encodings], 0),
            "attention_mask": padded([[1] * len(e.ids) for e in encodings], 0),
            "starts": torch.tensor(starts), "ends": torch.tensor(ends)}


def loss_of(model, batch):
    outputs = model(**{name: value for name, value in batch.items() if name in ("input_ids", "token_type_ids", "attention_mask")})
    if "next" in batch:
        return F.cross_entropy(outputs.logits.flatten(0, 1), batch["next"].flatten())
    lost = batch["attention_mask"].eq(0)  # transformers does not leave padding out
    parts = ((outputs.start_logits, batch["starts"]), (outputs.end_logits, batch["ends"]))
    return sum(F.cross_entropy(logits.masked_fill(lost, -torch.inf), target) for logits, target in parts) / 2


def train_loop(model, batch, steps, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    with no_attention_dropout(model):
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


@contextlib.contextmanager
def no_attention_dropout(model):
    model.eval()
    yield
    model.train()
