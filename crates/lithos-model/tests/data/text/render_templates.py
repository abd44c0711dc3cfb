"""Renders the templates of this folder as Hugging Face transformers does and writes template_goldens.json.

Needs jinja2 (`pip install jinja2==3.1.6`). The environment is set up from the description of chat templates in the
transformers documentation: a sandbox, `trim_blocks`, `lstrip_blocks`, loop controls, `tojson` as json.dumps without ASCII
escapes, `raise_exception`, and a `generation` block that only marks text.
"""

import json
import pathlib

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Refused(TemplateError):
    pass


def raise_exception(message):
    raise Refused(message)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place, in <b>°C</b> & \"wind\".",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 3}},
            "required": ["place"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}}


def call(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "question": dict(messages=[{"role": "user", "content": "  What is the capital of France?\n"}]),
    "system": dict(messages=[
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": "héllo 日本 👩‍💻 <b>&'\""},
    ]),
    "several turns": dict(messages=[
        {"role": "system", "content": "s"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>\nhidden\n</think>\n\nfirst answer"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "second", "reasoning_content": " because \n"},
        {"role": "user", "content": "three"},
    ]),
    "tools": dict(tools=[WEATHER, TIME], messages=[{"role": "user", "content": "Weather in Oslo?"}]),
    "system and tools": dict(tools=[TIME], messages=[
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Time?"},
    ]),
    "tool calls": dict(tools=[WEATHER, TIME], messages=[
        {"role": "user", "content": "Weather in Oslo and Rome?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Two calls.", "tool_calls": [
            call("get_weather", place="Oslo", days=2, wind=True, scale=0.5, extra={"a": [1, None, "é"]}),
            call("get_weather", place="Rome\nItaly"),
        ]},
        {"role": "tool", "content": "{\"celsius\": -3}"},
        {"role": "tool", "content": "21 °C"},
        {"role": "assistant", "content": "Cold and warm.", "reasoning_content": ""},
        {"role": "user", "content": "Thanks"},
    ]),
    "one tool call": dict(tools=[TIME], messages=[
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": "", "tool_calls": [call("now")]},
        {"role": "tool", "content": "12:30"},
    ]),
    "parts": dict(messages=[
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": "?"}]},
    ]),
    "wrapped tool response": dict(messages=[
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>"},
    ]),
    "late system": dict(messages=[{"role": "user", "content": "q"}, {"role": "system", "content": "s"}]),
    "no question": dict(messages=[{"role": "assistant", "content": "a"}]),
    "unknown role": dict(messages=[{"role": "user", "content": "q"}, {"role": "poet", "content": "s"}]),
}
OPTIONS = [
    dict(add_generation_prompt=True),
    dict(add_generation_prompt=False),
    dict(add_generation_prompt=True, enable_thinking=False),
    dict(add_generation_prompt=True, enable_thinking=True, extra=dict(reasoning_effort="low", preserve_thinking=True)),
    dict(add_generation_prompt=True, extra=dict(reasoning_effort="maximal")),
]
TOKENS = dict(bos_token="<|begin_of_text|>", eos_token="<|im_end|>")


def render(template, conversation, options):
    variables = dict(options)
    variables.update(variables.pop("extra", {}))
    try:
        return {"text": template.render(
            messages=conversation["messages"], tools=conversation.get("tools"), documents=None, **TOKENS, **variables
        )}
    except Refused as refusal:
        return {"refused": str(refusal)}
    except Exception as error:  # The template itself fails; how is not compared.
        return {"failed": type(error).__name__}


goldens = {"conversations": CONVERSATIONS, "options": OPTIONS, "rendered": []}
for path in sorted((HERE / "templates").glob("*.jinja")):
    template = environment.from_string(path.read_text())
    for name, conversation in CONVERSATIONS.items():
        for number, options in enumerate(OPTIONS):
            if path.stem != "reasoning_xml" and number > 2:
                continue
            if path.stem == "language" and (number > 0 or name not in ("several turns", "tool calls")):
                continue
            result = render(template, conversation, options)
            goldens["rendered"].append(dict(template=path.stem, conversation=name, options=number, **result))

(HERE / "template_goldens.json").write_text(json.dumps(goldens, ensure_ascii=False, indent=1) + "\n")
