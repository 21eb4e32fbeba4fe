#!/usr/bin/env python3
"""Structured output beside xgrammar and llguidance: same schemas, same vocabulary, same machine, one run after the other.

  compare_structured.py --data FILE.jsonl --tokenizer tokenizer.json --ours build/release/bin/schema_bench [--limit N]

Needs PyPI's xgrammar, llguidance and tokenizers (a virtual environment outside of the project). Every engine gets one thread.
Each instance is written by json.dumps, cut by the tokenizer, and pushed in token by token with the mask computed before each token,
as schema_bench does. The peers are called through their Python bindings, which adds about a microsecond to a call.
"Supported": the schema compiles and every instance is judged right. Timings in Python are wall-clock; the
schema_bench figures are too.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


class XGrammar:
    name = "xgrammar"

    def __init__(self, tokens, special, eos):
        import xgrammar
        self.x = xgrammar
        vocab = [b"" if i in special else t for i, t in enumerate(tokens)]
        info = xgrammar.TokenizerInfo(vocab, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(vocab), stop_token_ids=[eos])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bitmask = xgrammar.allocate_token_bitmask(1, len(vocab))
        self.words = self.bitmask.numpy()[0]
        self.eos = eos

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def memory(self, compiled):
        return compiled.memory_size_bytes

    def start(self, compiled):
        return self.x.GrammarMatcher(compiled)

    def mask(self, matcher):
        matcher.fill_next_token_bitmask(self.bitmask)

    def allowed(self, token):
        return int(self.words[token // 32]) >> (token % 32) & 1

    def accept(self, matcher, token):
        return matcher.accept_token(token)


class LLGuidance:
    name = "llguidance"

    def __init__(self, tokenizer_path, vocab_size, eos):
        import llguidance
        import llguidance.numpy as masks
        self.g, self.masks, self.eos = llguidance, masks, eos
        with open(tokenizer_path, encoding="utf-8") as f:
            text = f.read()
        self.tokenizer = llguidance.LLTokenizer(text, n_vocab=vocab_size, eos_token=eos)
        self.bitmask = masks.allocate_token_bitmask(1, vocab_size)
        self.words = self.bitmask[0]

    def compile(self, schema):
        matcher = self.g.LLMatcher(self.tokenizer, self.g.LLMatcher.grammar_from_json_schema(schema))
        if matcher.get_error():
            raise RuntimeError(matcher.get_error())
        return matcher

    def memory(self, compiled):
        return 0

    def start(self, compiled):
        return compiled.deep_copy()

    def mask(self, matcher):
        self.masks.fill_next_token_bitmask(matcher, self.bitmask, 0)

    def allowed(self, token):
        return int(self.words[token // 32]) >> (token % 32) & 1

    def accept(self, matcher, token):
        return matcher.consume_token(token)


def run(engine, lines, encode):
    r = {"schemas": 0, "supported": 0, "refused": 0, "wrong": 0, "false_accepts": 0, "false_rejects": 0}
    compile_us, mask_us, memory = [], [], []
    for line in lines:
        r["schemas"] += 1
        schema = json.dumps(line["schema"], ensure_ascii=False)
        begin = time.perf_counter()
        try:
            compiled = engine.compile(schema)
        except Exception:  # a peer's refusal, whatever its type
            compile_us.append((time.perf_counter() - begin) * 1e6)
            r["refused"] += 1
            continue
        compile_us.append((time.perf_counter() - begin) * 1e6)
        right = True
        for test in line["tests"]:
            matcher = engine.start(compiled)
            accepted = True
            for token in encode(json.dumps(test["data"], ensure_ascii=False)):
                begin = time.perf_counter()
                engine.mask(matcher)
                mask_us.append((time.perf_counter() - begin) * 1e6)
                if not engine.allowed(token) or not engine.accept(matcher, token):
                    accepted = False
                    break
            if accepted:
                engine.mask(matcher)
                accepted = bool(engine.allowed(engine.eos))
            if accepted != test["valid"]:
                right = False
                r["false_accepts" if accepted else "false_rejects"] += 1
        memory.append(engine.memory(compiled))
        r["supported" if right else "wrong"] += 1
    r["compile"] = {"p50": quantile(compile_us, .5), "p99": quantile(compile_us, .99), "max": max(compile_us)}
    r["mask"] = {"p50": quantile(mask_us, .5), "p99": quantile(mask_us, .99), "p999": quantile(mask_us, .999), "max": max(mask_us)}
    r["memory"] = {"p95": quantile(memory, .95)}
    return r


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--ours", required=True, help="the schema_bench program")
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--engines", default="ours,llguidance,xgrammar")
    args = parser.parse_args()
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(args.tokenizer)
    with open(args.tokenizer, encoding="utf-8") as f:
        description = json.load(f)
    size = tokenizer.get_vocab_size()
    special = {t["id"] for t in description["added_tokens"]}
    eos = tokenizer.token_to_id("<｜end▁of▁sentence｜>")
    # Byte-level spelling back to bytes.
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {chr(b): b for b in plain}
    table.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in plain)})
    tokens = []
    for i in range(size):
        text = tokenizer.id_to_token(i) or ""
        tokens.append(text.encode() if i in special else bytes(table[c] for c in text))
    with open(args.data, encoding="utf-8") as f:
        lines = [json.loads(line) for _, line in zip(range(args.limit), f)]

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    results = {}
    for name in args.engines.split(","):
        if name == "ours":
            with tempfile.NamedTemporaryFile(suffix=".json") as out:
                subprocess.run([args.ours, "--data", args.data, "--tokenizer", args.tokenizer, "--limit", str(args.limit), "--json",
                                out.name], check=True, stdout=subprocess.DEVNULL)
                with open(out.name, encoding="utf-8") as f:
                    results[name] = json.load(f)
        else:
            engine = XGrammar(tokens, special, eos) if name == "xgrammar" else LLGuidance(args.tokenizer, size, eos)
            results[name] = run(engine, lines, encode)

    def row(label, pick):
        print("| " + " | ".join([label] + [pick(results[n]) for n in results]) + " |", flush=True)

    print("| | " + " | ".join(results) + " |")
    print("|---|" + "---:|" * len(results))
    row("schemas", lambda r: str(r["schemas"]))
    row("supported", lambda r: f'{100 * r["supported"] / r["schemas"]:.1f} %')
    row("refused", lambda r: str(r["refused"]))
    row("invalid instances accepted", lambda r: str(r["false_accepts"]))
    row("valid instances rejected", lambda r: str(r["false_rejects"]))
    for what, unit, scale in (("compile", "ms", 1e3), ("mask", "us", 1)):
        for q in ("p50", "p99", "p999", "max"):
            if all(q in r[what] for r in results.values()):
                row(f"{what} {q}, {unit}", lambda r, w=what, k=q, s=scale: f"{r[w][k] / s:.2f}")
    row("memory of a schema p95, KiB", lambda r: f'{r["memory"]["p95"] / 1024:.0f}' if r["memory"]["p95"] else "-")


if __name__ == "__main__":
    main()
