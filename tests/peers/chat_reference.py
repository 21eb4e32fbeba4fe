#!/usr/bin/env python3
"""Writes tests/tokenizer/data/chat_corpus.jsonl: request bodies with the prompt text they must give.

Two sources that share no code with the engine: models/demo-v41/tasks.py, which made the texts the demo model was trained on,
and `encode` below, a direct transcription of the format's rules that builds one string, as the published encoders do.
usage: tests/peers/chat_reference.py > tests/tokenizer/data/chat_corpus.jsonl
"""
import importlib.util
import json
import os
import random

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT, REMINDER = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"
IMAGE, DSML = "<｜deepseek_image｜>", "｜DSML｜"
WORDING = {
    "v41": {"version": 1, "format": "v41", "tools_section": "## Tools\n\nCall with <｜DSML｜ calls>.\n{tool_schemas}\nEnd of tools.",
            "response_format_section": "## Response Format:\n\nFollow {schema} exactly.",
            "effort_line": "Effort: {effort} of 100.\n\n", "efforts": {"low": 50, "high": 75, "max": 100}, "default_effort": "high"},
    "v4": {"version": 1, "format": "v4", "tools_section": "## Tools\n\n{tool_schemas}", "response_format_section": "## Response Format:\n\n{schema}",
           "effort_texts": {"low": "", "high": "Think hard.\n\n", "max": "Think harder.\n\n"}, "default_effort": "low"},
}


def dumps(v):
    return json.dumps(v, ensure_ascii=False)


def text_of(content):
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(p["text"] if p["type"] == "text" else IMAGE for p in content)


def calls_text(calls, fmt):
    space, block = (" ", "calls") if fmt == "v41" else ("", "tool_calls")
    out = f"\n\n<{DSML}{space}{block}>\n"
    for c in calls:
        out += f"<{DSML}{space}invoke name=\"{c['function']['name']}\">\n"
        for k, v in json.loads(c["function"]["arguments"]).items():
            value, is_text = (v, "true") if isinstance(v, str) else (dumps(v), "false")
            out += f"<{DSML}{space}parameter name=\"{k}\" string=\"{is_text}\">{value}</{DSML}{space}parameter>\n"
        out += f"</{DSML}{space}invoke>\n"
    return out + f"</{DSML}{space}{block}>"


def encode(body, options, w):
    fmt, messages = w["format"], body["messages"]
    tools = body.get("tools") or []
    if body.get("tool_choice") == "none":
        tools = []
    thinking = options.get("thinking", False)
    user_like = [i for i, m in enumerate(messages) if m["role"] in ("user", "tool", "developer") or (m["role"] == "system" and i > 0)]
    last = user_like[-1] if user_like else len(messages)
    drop = thinking and options.get("drop_thinking", True) and not tools

    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    out, first = BOS, messages[0]["role"] == "system"
    if first or thinking or tools or schema is not None:
        out += SYSTEM if fmt == "v41" else ""
        if thinking:
            effort = options.get("effort") or w["default_effort"]
            if "effort_texts" in w:
                out += w["effort_texts"][effort]
            else:
                out += w["effort_line"].replace("{effort}", str(w["efforts"].get(effort, effort)))
        if first:
            out += text_of(messages[0]["content"])
        if tools:
            out += "\n\n" + w["tools_section"].replace("{tool_schemas}", "\n".join(dumps(t["function"]) for t in tools))
        if schema is not None:
            out += "\n\n" + w["response_format_section"].replace("{schema}", dumps(schema))

    i = 1 if first else 0
    order = {}
    while i < len(messages):
        m = messages[i]
        if m["role"] in ("user", "tool"):
            group = []
            while i < len(messages) and messages[i]["role"] in ("user", "tool"):
                group.append(messages[i])
                i += 1
            results = sorted((g for g in group if g["role"] == "tool"), key=lambda g: order.get(g["tool_call_id"], 10 ** 9))
            parts = []
            for g in group:
                if g["role"] == "tool":
                    parts.append(f"<tool_result>{text_of(results.pop(0)['content'])}</tool_result>")
                else:
                    parts.append(text_of(g["content"]))
            out += USER + "\n\n".join(parts)
            continue
        if m["role"] == "system":
            out += (SYSTEM if fmt == "v41" else "") + text_of(m["content"])
        elif m["role"] == "latest_reminder":
            out += REMINDER + text_of(m["content"])
        elif m["role"] == "developer":
            if not (drop and i < last):
                out += USER + text_of(m["content"])
        else:
            keep = thinking and (not drop or last == len(messages) or i > last)
            out += ASSISTANT + ("<think>" + m.get("reasoning_content", "") + "</think>" if keep else "</think>")
            out += text_of(m.get("content"))
            if m.get("tool_calls"):
                order = {c["id"]: k for k, c in enumerate(m["tool_calls"])}
                out += calls_text(m["tool_calls"], fmt)
            else:
                order = {}
            if not (options.get("continue_final_message") and i == len(messages) - 1):
                out += EOS
        i += 1
    if messages[-1]["role"] != "assistant":
        out += ASSISTANT + ("<think>" if thinking else "</think>")
    return out


TEXTS = ["Hello", "What is 2 + 2?", "毕老师，你好！", "line one\nline two\n", "  spaced  ", "", "emoji 👍🏽 e\u0301", "a \"quoted\" <b>tag</b> {schema}",
         "</tool_result>", "1234567", "\t{effort}"]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city — now", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 1e3},
                                         "p": {"type": "number", "multipleOf": 1e-05, "default": 2.5}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "files::search", "description": "Find \"files\"\n\u2028 \x7f \x01", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}},
]
ARGUMENTS = [{}, {"city": "Köln"}, {"city": "Oslo", "days": 3}, {"list": [1, 2.0, "x", None], "flag": True, "nested": {"a": {"b": []}}},
             {"text": "two\nlines \"quoted\" \\ back"}, {"e": "", "big": 12345678901234567, "small": 1e-07, "large": 1e+16, "x": -0.1}]


def random_case(r):
    fmt = r.choice(["v41", "v41", "v4"])
    messages = []
    if r.random() < 0.5:
        messages.append({"role": "system", "content": r.choice(TEXTS)})
    turns = r.randint(1, 4)
    for t in range(turns):
        messages.append({"role": "user", "content": r.choice(TEXTS) if r.random() < 0.8 else
                         [{"type": "text", "text": r.choice(TEXTS)} for _ in range(r.randint(1, 3))]})
        if fmt == "v41" and r.random() < 0.15:
            messages[-1]["content"] = [{"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text", "text": r.choice(TEXTS)}, {"type": "image_url", "image_url": {"url": "data:,y"}}]
        if r.random() < 0.15:
            messages.append({"role": "user", "content": r.choice(TEXTS)})
        if r.random() < 0.1:
            messages.append({"role": "system", "content": r.choice(TEXTS)})
        if r.random() < 0.1:
            messages.append({"role": "latest_reminder", "content": r.choice(TEXTS)})
        if r.random() < 0.1:
            messages.append({"role": "developer", "content": r.choice(TEXTS)})
        if t == turns - 1 and r.random() < 0.7:
            break
        a = {"role": "assistant", "content": r.choice(TEXTS)}
        if r.random() < 0.5:
            a["reasoning_content"] = r.choice(TEXTS)
        if r.random() < 0.4:
            n = r.randint(1, 3)
            a["tool_calls"] = [{"id": f"c{t}_{k}", "type": "function", "function": {"name": r.choice(["get_weather", "files::search"]),
                                "arguments": dumps(r.choice(ARGUMENTS))}} for k in range(n)]
            if r.random() < 0.5:
                a["content"] = None
            messages.append(a)
            ids = [c["id"] for c in a["tool_calls"]]
            r.shuffle(ids)
            for k in ids:
                messages.append({"role": "tool", "tool_call_id": k, "content": r.choice(TEXTS)})
        else:
            messages.append(a)
    body, options = {"messages": messages}, {}
    if messages[-1]["role"] == "assistant":
        options["continue_final_message"] = True
    if r.random() < 0.5:
        options["thinking"] = True
        if r.random() < 0.6:
            options["effort"] = r.choice(["low", "high", "max"] + (["7"] if fmt == "v41" else []))
        if r.random() < 0.3:
            options["drop_thinking"] = False
    if r.random() < 0.4:
        body["tools"] = TOOLS[:r.randint(1, 2)]
        if r.random() < 0.2:
            body["tool_choice"] = "none"
    if r.random() < 0.2:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"ä": {"enum": [1, 2.50, None, True]}}}}}
    return {"wording": fmt, "options": options, "body": body, "text": encode(body, options, WORDING[fmt])}


def demo_case(tasks, r):
    kind = r.randrange(4)
    system, think, tools = None, None, None
    if kind == 0:
        turns, think = tasks.arith_think(r)
    elif kind == 1:
        turns, text = tasks.tool(r)
        system, schema = text.split("\n\n## Tools\n\n")
        tools = [{"type": "function", "function": json.loads(schema)}]
        system_text = text
    else:
        turns = tasks.multi(r) if kind == 2 else tasks.extract(r)
        system = r.choice([None, "You are a helpful assistant."])
    whole = tasks.chat(turns, system=system_text if tools else system, think=think)
    answer = (think + "</think>" if think is not None else "") + turns[-1][1] + EOS
    assert whole.endswith(answer)
    messages = [{"role": "system", "content": system}] if system is not None else []
    for k, (u, a) in enumerate(turns):
        messages.append({"role": "user", "content": u})
        if k < len(turns) - 1:
            messages.append({"role": "assistant", "content": a})
    body = {"messages": messages}
    if tools:
        body["tools"] = tools
    return {"wording": "demo", "options": {"thinking": True} if think is not None else {}, "body": body, "text": whole[:-len(answer)]}


def main():
    spec = importlib.util.spec_from_file_location("tasks", os.path.join(ROOT, "models/demo-v41/tasks.py"))
    tasks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tasks)
    r = random.Random(4)
    print(json.dumps({"wordings": WORDING}, ensure_ascii=False))
    for _ in range(20):
        print(json.dumps(demo_case(tasks, r), ensure_ascii=False))
    for _ in range(120):
        print(json.dumps(random_case(r), ensure_ascii=False))


main()
