#!/usr/bin/env python3
"""Texts generated through the masks of schemas, checked by PyPI's jsonschema.

  check_generated.py --walk build/release/bin/schema_walk --data FILE.jsonl [--seed N] [--walks N]

Exit code 1 when a text is no JSON or breaks its schema. Formats are checked where jsonschema can without further packages. Members
written twice are skipped: a schema gives them no meaning. Prints its seed.
"""
import argparse
import json
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: no jsonschema")
    sys.exit(0)


class Repeated(Exception):
    pass


def unique(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise Repeated
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--walk", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--walks", type=int, default=5)
    args = parser.parse_args()
    print(f"seed {args.seed}")
    with open(args.data, encoding="utf-8") as f:
        schemas = [json.loads(line)["schema"] for line in f]
    made = subprocess.run([args.walk, args.data, str(args.seed), str(args.walks)], check=True, capture_output=True)
    if made.stderr:
        print(made.stderr.decode(errors="replace"))
    validators, good, bad, skipped = {}, 0, 0, 0
    for line in made.stdout.splitlines():
        entry = json.loads(line)
        number = entry["line"]
        if number not in validators:
            kind = jsonschema.validators.validator_for(schemas[number], default=jsonschema.Draft202012Validator)
            validators[number] = kind(schemas[number])
        try:
            value = json.loads(entry["text"], object_pairs_hook=unique)
            errors = [e.message for e in validators[number].iter_errors(value)]
        except Repeated:
            skipped += 1
            continue
        except Exception as error:  # the validator itself gave up (a pattern Python cannot read, say), or no JSON
            if isinstance(error, json.JSONDecodeError):
                errors = [str(error)]
            else:
                skipped += 1
                continue
        if errors:
            bad += 1
            print(f"schema {number}: {entry['text'][:200]!r}: {errors[0][:200]}")
        else:
            good += 1
    print(f"{good} valid, {bad} invalid, {skipped} skipped, of {len(validators)} schemas")
    sys.exit(1 if bad or made.stderr else 0)


if __name__ == "__main__":
    main()
