"""MiniLM trained with transformers in a plain PyTorch loop, as in Hugging Face's examples: the peer of text_recipes.py."""

import json

import torch
import transformers

MOST_STARTS, MOST_TOKENS = 20, 30  # of an answer
EVAL_BATCH = 64

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def start(kind, minilm, asked, seed, **more):
    """Tokenizer and model; the seed draws the head, and later the order and dropout."""
    torch.set_num_threads(asked.threads)
    torch.manual_seed(seed)
    model = kind.from_pretrained(minilm, dtype=torch.float32, attn_implementation="sdpa", **more)
    return transformers.AutoTokenizer.from_pretrained(minilm), model


def batches(features, tokenizer, size, shuffles=False):
    collate = transformers.DataCollatorWithPadding(tokenizer)
    return torch.utils.data.DataLoader(features, size, shuffle=shuffles, collate_fn=collate)


def fit(model, features, tokenizer, asked):
    loader = batches(features, tokenizer, asked.batch, shuffles=True)
    groups = [{"params": [], "weight_decay": asked.weight_decay}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in model.named_parameters():
        groups[name.endswith("bias") or "LayerNorm" in name]["params"].append(parameter)
    optimizer = torch.optim.AdamW(groups, lr=asked.lr, betas=(0.9, 0.999), eps=1e-8, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, asked.epochs * len(loader))
    model.train()
    for _ in range(asked.epochs):
        for batch in loader:
            optimizer.zero_grad()
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), asked.clip_norm)
            optimizer.step()
            schedule.step()
    model.eval()


def encode_windows(tokenizer, questions, asked):
    """Windows of questions and contexts, with the number of the question and the offsets of the context's tokens."""
    encoded = tokenizer([one["question"].lstrip() for one in questions], [one["context"] for one in questions],
                        truncation="only_second", max_length=asked.length, stride=asked.stride,
                        return_overflowing_tokens=True, return_offsets_mapping=True)
    windows = []
    for i, number in enumerate(encoded["overflow_to_sample_mapping"]):
        fields = {name: encoded[name][i] for name in ("input_ids", "attention_mask", "token_type_ids")}
        offsets = {token: encoded["offset_mapping"][i][token]
                   for token, part in enumerate(encoded.sequence_ids(i)) if part == 1}
        windows.append((fields, number, offsets))
    return windows


def answer_tokens(question, offsets):
    """First and last token of the first answer; [CLS] for both if the window does not hold all of it."""
    begin = question["answers"][0]["answer_start"]
    end = begin + len(question["answers"][0]["text"])
    before = [token for token, (first, _) in offsets.items() if first <= begin]
    behind = [token for token, (_, last) in offsets.items() if last >= end]
    first, last = (before[-1], behind[0]) if before and behind else (0, 0)
    return {"start_positions": first, "end_positions": last}


def best_answer(starts, ends, offsets):
    """(sum of the logits, first character, end) of the best answer with text in one window; None without one."""
    def best(logits):
        return logits.topk(min(MOST_STARTS, len(logits))).indices.tolist()

    return max(((starts[first].item() + ends[last].item(), offsets[first][0], offsets[last][1])
                for first in best(starts) for last in best(ends)
                if first in offsets and last in offsets and 0 <= last - first < MOST_TOKENS
                and offsets[first][0] < offsets[last][1]), default=None)


@torch.no_grad()
def find_answers(model, tokenizer, questions, asked):
    windows = encode_windows(tokenizer, questions, asked)
    found, rest = {}, iter(windows)
    for batch in batches([fields for fields, _, _ in windows], tokenizer, EVAL_BATCH):
        outputs = model(**batch)
        for starts, ends in zip(outputs.start_logits, outputs.end_logits):
            _, number, offsets = next(rest)
            both = found.get(number), best_answer(starts, ends, offsets)
            found[number] = max(filter(None, both), default=None)
    return {one["id"]: one["context"][found[i][1]:found[i][2]] if found[i] else "" for i, one in enumerate(questions)}


def answer_questions(asked, seed, minilm, train, test):
    """{question id: answer} of the questions `test`, after training on those of `train`."""
    tokenizer, model = start(transformers.AutoModelForQuestionAnswering, minilm, asked, seed)
    windows = encode_windows(tokenizer, train, asked)
    fit(model, [fields | answer_tokens(train[number], offsets) for fields, number, offsets in windows], tokenizer, asked)
    return find_answers(model, tokenizer, test, asked)


@torch.no_grad()
def top1(model, features, tokenizer):
    hits = ((model(**batch).logits.argmax(1) == batch["labels"]).sum() for batch in batches(features, tokenizer, EVAL_BATCH))
    return 100 * sum(hits).item() / len(features)


def classify(asked, seed, minilm, folder, classes):
    """Top-1 on test.jsonl in percent, after training on train.jsonl."""
    tokenizer, model = start(transformers.AutoModelForSequenceClassification, minilm, asked, seed, num_labels=classes)
    parts = []
    for name in ("train.jsonl", "test.jsonl"):
        rows = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        encoded = tokenizer([row["text"] for row in rows], truncation=True, max_length=asked.length)
        parts.append([{key: encoded[key][i] for key in encoded} | {"labels": row["label"]} for i, row in enumerate(rows)])
    fit(model, parts[0], tokenizer, asked)
    return top1(model, parts[1], tokenizer)
