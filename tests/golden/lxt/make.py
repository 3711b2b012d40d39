"""Write relevance computed by LXT, to compare ours with. Not run by tests; LXT patches transformers for its process.

    git clone https://github.com/rachtibat/LRP-eXplains-Transformers
    PYTHONPATH=.:src:LRP-eXplains-Transformers python tests/golden/lxt/make.py llama attn-lrp
    (also qwen2 and gpt2, and cp-lrp; and stories15m with the folder of the model as third argument)

Models are in float32: LXT's norms compute in float32 anyway. The target is the logit of the next token, the prediction
at the last position; for the answer, the sum of the logits of the tokens from `first` on.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from tests.tiny import language_subject
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = {
    "tiny": "The film was slow, but the music was touching. It is a rare plot.",
    "stories15m": "Once upon a time there was a little girl named Lily. She had a red ball. One day, the ball",
}
N_ANSWER = 4


def open_model(kind: str, folder: str | None) -> tuple[Any, Any, str]:
    if folder is None:
        subject = language_subject(kind)
        return subject.model.float(), subject.tokenizer, PROMPTS["tiny"]
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder), PROMPTS[kind]


def main(kind: str, rules: str, folder: str | None = None) -> None:
    architecture = "llama" if folder else kind
    modeling = importlib.import_module(f"transformers.models.{architecture}.modeling_{architecture}")
    patches = importlib.import_module(f"lxt.efficient.models.{architecture}")
    core = importlib.import_module("lxt.efficient")
    model, tokenizer, prompt = open_model(kind, folder)
    encoded = tokenizer(prompt, return_tensors="pt")
    ids = model.generate(**encoded, max_new_tokens=N_ANSWER, do_sample=False)
    core.monkey_patch(modeling, patch_map=patches.attnLRP if rules == "attn-lrp" else patches.cp_LRP)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    first = encoded["input_ids"].shape[1]
    leaf: list[torch.Tensor] = []

    def make_leaf(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        leaf.append(output.detach().requires_grad_())
        return leaf[0]

    embeddings = model.transformer.drop if architecture == "gpt2" else model.model.embed_tokens
    embeddings.register_forward_hook(make_leaf)
    logits = model(input_ids=ids, use_cache=False).logits[0]
    picked = [logits[i - 1, ids[0, i]] for i in range(first, ids.shape[1])]
    targets = {"first token": picked[0], "last token": picked[-1], "answer": torch.stack(picked).sum()}
    relevance = {}
    for name, target in targets.items():
        (gradient,) = torch.autograd.grad(target, leaf[0], retain_graph=True)
        relevance[name] = [float(f"{x:.9g}") for x in (gradient * leaf[0]).sum(-1)[0].tolist()]
    path = Path(__file__).parent / f"{kind}.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    stored |= {"prompt": prompt, "ids": ids[0].tolist(), "first": first, rules: relevance}
    stored |= {"logits": {name: float(f"{target.item():.9g}") for name, target in targets.items()}}
    path.write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
