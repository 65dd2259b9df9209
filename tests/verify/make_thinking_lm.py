"""Teaches tiny-qwen3 one chat: thoughts between <think> and </think>, and a tool call when it has a tool.

    python make_thinking_lm.py TINY_QWEN3 OUT

Seconds on one core. Needs torch and transformers 5. It shows what a server's parsers make of such answers
and is of no other use.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

NEW = ("<think>", "</think>", "<tool_call>", "</tool_call>")
STEPS, RATE, KNOWS = 120, 2e-3, 1e-2
ASKED = "Report that all is well."
THOUGHTS = "<think>\nI am asked to say that all is well.\n</think>\n\n"
CALL = '<tool_call>\n{"name": "report", "arguments": {"ok": true}}\n</tool_call>'
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def main(tiny: Path, out: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokens = AutoTokenizer.from_pretrained(tiny)
    tokens.add_tokens(list(NEW))
    tokens.chat_template = TEMPLATE
    model = Qwen3ForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    model.resize_token_embeddings(len(tokens), mean_resizing=True)
    rows = [row(tokens, tool) for tool in (False, True)]
    teach(model, rows, tokens.pad_token_id)
    model.to(torch.bfloat16).save_pretrained(out)
    tokens.save_pretrained(out)
    for tool in (False, True):
        assert said(model, tokens, tool=tool) == answer(tool=tool), said(model, tokens, tool=tool)


def prompt(tokens, tool: bool) -> str:
    tools = [{"type": "function", "function": {"name": "report"}}] if tool else None
    messages = [{"role": "user", "content": ASKED}]
    return tokens.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)


def answer(*, tool: bool) -> str:
    return THOUGHTS + (CALL if tool else "All is well.") + "<|im_end|>"


def row(tokens, tool: bool) -> tuple[list[int], int]:
    """The tokens of a chat, and how many of them are asked."""
    begin = tokens(prompt(tokens, tool)).input_ids
    end = tokens(answer(tool=tool)).input_ids
    return begin + end, len(begin)


def teach(model, rows, pad: int) -> None:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([r + [pad] * (longest - len(r)) for r, _ in rows])
    labels = ids.clone()
    for at, (r, asked) in enumerate(rows):
        labels[at, :asked] = -100
        labels[at, len(r) :] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _step in range(STEPS):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < KNOWS:
            break


def said(model, tokens, *, tool: bool) -> str:
    given = tokens(prompt(tokens, tool), return_tensors="pt")
    made = model.generate(**given, max_new_tokens=64, do_sample=False)
    return tokens.decode(made[0, given.input_ids.shape[1] :])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
