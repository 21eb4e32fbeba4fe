"""Answers of the demo model under generated JSON schemas, validated by an independent validator (PyPI jsonschema), and the
cost of constraints. Usage: generated_schemas.py PROGRAM [SCHEMAS [SEEDS]]"""
import json, random, subprocess, sys, tempfile, time

import jsonschema


def schema(r, depth=0):
    kind = r.choice(["integer", "number", "string", "enum", "boolean", "null", "array", "object"][: 6 if depth > 1 else 8])
    if kind == "integer":
        low = r.randint(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + r.randint(0, 500)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "exclusiveMaximum": r.randint(1, 100)}
    if kind == "string":
        s = {"type": "string", "maxLength": r.randint(1, 20)}
        if r.random() < 0.3:
            s = {"type": "string", "pattern": r.choice(["^[A-Z][a-z]{1,8}$", "^[0-9]{3}-[0-9]{4}$", "^(red|green|blue)+$"]), "maxLength": 12}
        elif r.random() < 0.2:
            s = {"type": "string", "format": r.choice(["date", "uuid", "ipv4"])}
        return s
    if kind == "enum":
        return {"enum": r.sample(["red", "green", 1, 2.5, None, True, "a b", [1], {"k": "v"}], r.randint(1, 4))}
    if kind == "array":
        low = r.randint(0, 2)
        return {"type": "array", "items": schema(r, depth + 1), "minItems": low, "maxItems": low + r.randint(0, 3)}
    if kind == "object":
        names = r.sample(["name", "age", "city", "job", "items", "x", "y z", "ü"], r.randint(1, 4))
        return {"type": "object", "properties": {n: schema(r, depth + 1) for n in names},
                "required": r.sample(names, r.randint(0, len(names))), "additionalProperties": False}
    return {"type": kind}


def run(program, lines, *options):
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/in", "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        begin = time.time()
        subprocess.run([program, "run", "-i", folder + "/in", "-o", folder + "/out", *options], check=False, stderr=subprocess.DEVNULL)
        seconds = time.time() - begin
        return {o["custom_id"]: o for o in map(json.loads, open(folder + "/out"))}, seconds


def request(name, seed, **more):
    body = {"messages": [{"role": "user", "content": "Give me some JSON."}], "temperature": 1, "seed": seed, **more}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def validity(program, count, seeds):
    r = random.Random(20261201)
    schemas = [schema(r) for _ in range(count)]
    lines = [request(f"{i}.{s}", s, max_tokens=700, response_format={
        "type": "json_schema", "json_schema": {"name": "s", "schema": schemas[i]}}) for i in range(count) for s in range(seeds)]
    out, seconds = run(program, lines)
    bad = cut = 0
    for name, line in out.items():
        choice = line["response"]["body"]["choices"][0] if line.get("response") and not line.get("error") else None
        if choice is None:
            bad += 1
            print("error:", name, json.dumps(line)[:300])
        elif choice["finish_reason"] == "length":
            cut += 1
        else:
            try:
                jsonschema.Draft202012Validator(schemas[int(name.split(".")[0])], format_checker=jsonschema.FormatChecker()).validate(
                    json.loads(choice["message"]["content"]))
            except Exception as e:
                bad += 1
                print("invalid:", name, repr(choice["message"]["content"])[:200], str(e).splitlines()[0])
    print(f"{len(out)} of {len(lines)} answers, {bad} invalid, {cut} cut off by max_tokens, {seconds:.1f} s")
    return bad == 0 and len(out) == len(lines)


def cost(program, repetitions=5):
    """Tokens a second of 32 requests that all produce 200 tokens, free and under a schema that allows long strings."""
    long_text = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "string", "minLength": 2000}}}
    speeds = {"free": [], "constrained": []}
    for _ in range(repetitions):
        for kind, more in (("free", {"ignore_eos": True}), ("constrained", {"response_format": long_text})):
            out, _ = run(program, [request(str(i), i, max_tokens=20, **more) for i in range(32)])
            short = run(program, [request(str(i), i, max_tokens=20, **more) for i in range(32)])[1]
            out, long = run(program, [request(str(i), i, max_tokens=220, **more) for i in range(32)])
            tokens = sum(o["response"]["body"]["usage"]["completion_tokens"] for o in out.values())
            speeds[kind].append((tokens - 32 * 20) / (long - short))
    median = {k: sorted(v)[len(v) // 2] for k, v in speeds.items()}
    print(f"batch 32: free {median['free']:.0f} tokens/s, constrained {median['constrained']:.0f} tokens/s, "
          f"ratio {median['constrained'] / median['free']:.3f}")


if __name__ == "__main__":
    program = sys.argv[1]
    fine = validity(program, int(sys.argv[2]) if len(sys.argv) > 2 else 200, int(sys.argv[3]) if len(sys.argv) > 3 else 3)
    cost(program)
    sys.exit(0 if fine else 1)
