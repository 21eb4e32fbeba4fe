#!/usr/bin/env python3
"""Compares our token ids with those of the PyPI package `tokenizers`, record by record.

usage: tests/peers/tokenizer_peer.py [--dump build/release/bin/tokenizer_dump] [--seed 1] [--mb 4] [--all-characters] TOKENIZER.json...
Needs: pip install tokenizers. Checked for every file: plain text (added tokens not matched), text with control tokens
matched, and the Engram token map as computed with that package's normalizers.
--write-golden FILE writes (text, ids) pairs for the first tokenizer instead.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from tokenizer_corpus import corpus  # noqa: E402
from tokenizers import Regex, Tokenizer, normalizers as N  # noqa: E402


def plain_tokenizer(path):
    spec = json.load(open(path, encoding="utf-8"))
    spec["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(spec, ensure_ascii=False))


def encode_all(tok, texts):
    out = []
    for i in range(0, len(texts), 1000):
        out += [e.ids for e in tok.encode_batch(texts[i:i + 1000], add_special_tokens=False)]
    return out


def ours(dump, path, mode, texts):
    with tempfile.TemporaryDirectory() as d:
        source, target = os.path.join(d, "in"), os.path.join(d, "out")
        with open(source, "wb") as f:
            for t in texts:
                b = t.encode()
                f.write(struct.pack("<I", len(b)) + b)
        subprocess.run([dump, mode, path, source, target], check=True)
        data = open(target, "rb").read()
    out, at = [], 0
    while at < len(data):
        n, = struct.unpack_from("<I", data, at)
        out.append(list(struct.unpack_from(f"<{n}i", data, at + 4)))
        at += 4 + 4 * n
    return out


def token_map(path):
    tok = Tokenizer.from_file(path)
    norm = N.Sequence([N.NFKC(), N.NFD(), N.StripAccents(), N.Lowercase(), N.Replace(Regex(r"[ \t\r\n]+"), " "),
                       N.Replace(Regex(r"^ $"), "\ue000"), N.Strip(), N.Replace("\ue000", " ")])
    ids, out = {}, []
    for i in range(tok.get_vocab_size()):
        text = tok.decode([i], skip_special_tokens=False)
        key = tok.id_to_token(i) if "\ufffd" in text else norm.normalize_str(text) or text
        out.append(ids.setdefault(key, len(ids)))
    return out, len(ids)


def compare(name, texts, want, got):
    bad = [i for i in range(len(texts)) if want[i] != got[i]]
    tokens = sum(map(len, want))
    print(f"  {name}: {len(texts)} records, {sum(len(t.encode()) for t in texts)} bytes, {tokens} tokens, {len(bad)} records differ")
    for i in bad[:3]:
        print("   ", ascii(texts[i][:200]), "\n     theirs", want[i][:40], "\n     ours  ", got[i][:40])
    return not bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dump", default="build/release/bin/tokenizer_dump")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--mb", type=float, default=4)
    p.add_argument("--write-golden")
    p.add_argument("--all-characters", action="store_true", help="also every code point between letters, digits, signs and spaces")
    p.add_argument("files", nargs="+")
    a = p.parse_args()
    if a.write_golden:
        path = a.files[0]
        plain, special = plain_tokenizer(path), Tokenizer.from_file(path)
        texts = [t for t in corpus(a.seed, 60000, use_files=False) if len(t) < 400]
        with open(a.write_golden, "w", encoding="utf-8") as f:
            for t, x, y in zip(texts, encode_all(plain, texts), encode_all(special, texts)):
                row = {"text": t, "ids": x}
                if y != x:
                    row["ids_special"] = y
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
        return 0
    good = True
    for path in a.files:
        print(path, "seed", a.seed)
        if a.all_characters:
            texts = [f"a{c}b{c}{c} {c}1{c}!{c}\n{c}\u3042{c}" for c in map(chr, (*range(0xD800), *range(0xE000, 0x110000)))]
            good &= compare("every character", texts, encode_all(plain_tokenizer(path), texts), ours(a.dump, path, "plain", texts))
        texts = corpus(a.seed, int(a.mb * 1e6))
        good &= compare("plain", texts, encode_all(plain_tokenizer(path), texts), ours(a.dump, path, "plain", texts))
        good &= compare("special", texts, encode_all(Tokenizer.from_file(path), texts), ours(a.dump, path, "special", texts))
        want, distinct = token_map(path)
        got = ours(a.dump, path, "map", [""])[0]
        print(f"  token map: {len(want)} ids, {distinct} distinct, {sum(x != y for x, y in zip(want, got))} differ")
        good &= want == got
    print("equal" if good else "DIFFERENT")
    return 0 if good else 1


sys.exit(main())
