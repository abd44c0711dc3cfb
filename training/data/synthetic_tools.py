"""Conversations in which the assistant calls tools: one call, two calls, errors, questions back, and no call at all."""

from __future__ import annotations

import json
import random

import tool_values as values
from synthetic_arithmetic import arithmetic
from synthetic_facts import fact, identity
from tool_bank import TOOLS, Tool, Values

Message = dict[str, object]
Conversation = dict[str, object]

_COMMANDS = ("pip ", "ls ", "rm ", "cat ", "grep ", "git ", "google ")
_QUERIES = ("get_", "read_", "list_", "search_", "find_", "count_", "check_", "track_", "query_")
_BY_NAME = {tool.name: tool for tool in TOOLS}
_SYSTEMS = ["You are a helpful assistant with access to tools.", "You are a helpful assistant. Use the tools when they help.", "Use a tool if you need one. Otherwise answer directly.", "You are an agent that can call functions.",
            "You are a personal assistant.", "You are a coding agent. Answer briefly.", "You are a helpful assistant."]
_ERRORS = ["timeout", "service unavailable", "permission denied", "connection refused", "internal error", "rate limit exceeded"]
_MISSING_FILE = "file not found"
_ERROR_ANSWERS = ["I'm sorry, I could not {action}: the tool reported \"{error}\".", "Sorry, that did not work. I tried to {action}, but got the error \"{error}\".", "I tried to {action}, but it failed with \"{error}\".", "Unfortunately I couldn't {action}. The error was \"{error}\"."]
_ERROR_MORE = [" Shall I try again?", " Would you like me to try again later?", " Please try again in a moment.", ""]
_FILE_MORE = [" Please check the path.", " Is the path right?", " Should I look in another folder?", ""]


def call_message(calls: list[tuple[str, dict[str, object]]], content: str = "") -> Message:
    """An assistant message with tool calls."""
    return {"role": "assistant", "content": content, "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls]}


def tool_message(name: str, content: str) -> Message:
    """The result of a tool."""
    return {"role": "tool", "name": name, "content": content}


def _tool_list(random_source: random.Random, needed: list[Tool], least: int = 0) -> list[dict[str, object]]:
    others = [tool for tool in TOOLS if tool not in needed]
    count = random_source.choice([0, 0, 1, 1, 2, 2, 3, 4])
    tools = needed + random_source.sample(others, max(count, least))
    random_source.shuffle(tools)
    return [tool.schema() for tool in tools]


def _finish(random_source: random.Random, messages: list[Message], tools: list[dict[str, object]]) -> Conversation:
    if random_source.random() < 0.4:
        messages = [{"role": "system", "content": random_source.choice(_SYSTEMS)}, *messages]
    return {"messages": messages, "tools": tools}


def _upper(text: str) -> str:
    return text if text.startswith(_COMMANDS) else text[0].upper() + text[1:]


def _polite(random_source: random.Random, request: str) -> str:
    if random_source.random() < 0.1 and request.endswith("."):
        return random_source.choice(["Hi! ", "Hello, ", "Hey, "]) + (request if random_source.random() < 0.5 else request)
    return request


def _answer(random_source: random.Random, tool: Tool, drawn: Values) -> str:
    return _upper(random_source.choice(tool.answers).format(**drawn))


def _result_of_error(random_source: random.Random, tool: Tool) -> str:
    if "path" in tool.parameters and tool.name not in ("write_file", "append_file", "list_directory") and random_source.random() < 0.6:
        return _MISSING_FILE
    return random_source.choice(_ERRORS)


def _single(random_source: random.Random) -> Conversation:
    tool = random_source.choice(TOOLS)
    drawn = tool.make(random_source)
    request = _polite(random_source, random_source.choice(tool.requests).format(**drawn))
    opening = random_source.choice(["", "", "", "", "Let me check." if tool.name.startswith(_QUERIES) else "Sure.", "One moment."])
    messages: list[Message] = [{"role": "user", "content": _upper(request) if random_source.random() < 0.9 else request}, call_message([(tool.name, tool.arguments(drawn))], opening)]
    if random_source.random() < 0.1:
        error = _result_of_error(random_source, tool)
        more = random_source.choice(_FILE_MORE if error == _MISSING_FILE else _ERROR_MORE)
        messages.append(tool_message(tool.name, json.dumps({"error": error})))
        messages.append({"role": "assistant", "content": random_source.choice(_ERROR_ANSWERS).format(action=tool.action.format(**drawn), error=error) + more})
    else:
        messages.append(tool_message(tool.name, tool.result_text(drawn)))
        messages.append({"role": "assistant", "content": _answer(random_source, tool, drawn)})
        if random_source.random() < 0.12:
            thanks, reply = random_source.choice([("Thanks!", "You're welcome!"), ("Thank you.", "You're welcome. Is there anything else I can do?"), ("Great, thanks.", "Happy to help!"), ("Perfect.", "Glad that worked.")])
            messages += [{"role": "user", "content": thanks}, {"role": "assistant", "content": reply}]
    return _finish(random_source, messages, _tool_list(random_source, [tool]))


def _missing(random_source: random.Random) -> Conversation:
    """The request lacks an argument; the assistant asks for it before it calls."""
    tool = random_source.choice([tool for tool in TOOLS if tool.missing])
    drawn = tool.make(random_source)
    assert tool.missing is not None
    request, question, reply = (part.format(**drawn) for part in tool.missing)
    messages: list[Message] = [
        {"role": "user", "content": request}, {"role": "assistant", "content": question}, {"role": "user", "content": reply},
        call_message([(tool.name, tool.arguments(drawn))]), tool_message(tool.name, tool.result_text(drawn)), {"role": "assistant", "content": _answer(random_source, tool, drawn)}]
    return _finish(random_source, messages, _tool_list(random_source, [tool]))


_AFTER = ["set_timer", "send_message", "create_note", "add_task", "play_music", "set_reminder", "set_light", "create_event", "append_file", "write_file"]


def _two_requests(random_source: random.Random) -> Conversation:
    """Two tasks in one message; two calls one after the other, or at once."""
    first = random_source.choice([tool for tool in TOOLS if tool.parameters])
    second = _BY_NAME[random_source.choice([name for name in _AFTER if name != first.name])]
    drawn, drawn_second = first.make(random_source), second.make(random_source)
    request = _upper(random_source.choice(first.requests[:3]).format(**drawn))
    addition = random_source.choice(second.requests[:2]).format(**drawn_second)
    joint = random_source.choice([" Then ", " After that, ", " Also, "])
    text = (request if request[-1] in ".?!" else request + ".") + joint + addition[0].lower() + addition[1:]
    calls = [(first.name, first.arguments(drawn)), (second.name, second.arguments(drawn_second))]
    results = [tool_message(first.name, first.result_text(drawn)), tool_message(second.name, second.result_text(drawn_second))]
    messages: list[Message] = [{"role": "user", "content": text}]
    if random_source.random() < 0.5:
        messages += [call_message(calls), *results]
    else:
        messages += [call_message(calls[:1]), results[0], call_message(calls[1:]), results[1]]
    messages.append({"role": "assistant", "content": f"{_answer(random_source, first, drawn)} {_answer(random_source, second, drawn_second)}"})
    return _finish(random_source, messages, _tool_list(random_source, [first, second]))


def _chain(random_source: random.Random) -> Conversation:
    """The second call uses the result of the first."""
    choice = random_source.randrange(6)
    messages: list[Message]
    if choice == 0:
        path, content, says = random_source.choice([file for file in values.FILES if "/" not in file[0]])
        others = random_source.sample([file[0] for file in values.FILES if file[0] != path and "/" not in file[0] and file[0].rsplit(".")[-1] != path.rsplit(".")[-1]], 2)
        ending = path.rsplit(".")[-1]
        names = others + [path]
        random_source.shuffle(names)
        folder = random_source.choice(["project", "work", "home", "shared"])
        messages = [{"role": "user", "content": random_source.choice([f"Read the .{ending} file in the folder {folder}.", f"There is a .{ending} file in {folder}. What does it say?"])}, call_message([("list_directory", {"path": folder})]),
                    tool_message("list_directory", json.dumps(names)), call_message([("read_file", {"path": f"{folder}/{path}"})]), tool_message("read_file", content), {"role": "assistant", "content": f"I read `{folder}/{path}`. {says}"}]
        needed = ["list_directory", "read_file"]
    elif choice == 1:
        person, text = random_source.choice(values.PEOPLE), random_source.choice(values.MESSAGES)
        address, phone = f"{person.lower()}@example.com", f"555-{random_source.randint(1000, 9999)}"
        arguments: dict[str, object] = {"to": address, "subject": "Message", "body": text[0].upper() + text[1:] + "."}
        messages = [{"role": "user", "content": random_source.choice([f"Email {person} that {text}. The address is in my contacts.", f"Look up {person}'s address and write that {text}."])}, call_message([("find_contact", {"name": person})]),
                    tool_message("find_contact", json.dumps({"phone": phone, "email": address})), call_message([("send_email", arguments)]), tool_message("send_email", json.dumps({"status": "sent"})), {"role": "assistant", "content": f"I sent the email to {person} at {address}."}]
        needed = ["find_contact", "send_email"]
    elif choice == 2:
        first, second = random_source.sample(values.CITIES, 2)
        warm, cold = random_source.sample(range(0, 33), 2)
        winner = first if warm > cold else second
        calls = [("get_weather", {"city": first}), ("get_weather", {"city": second})]
        results = [tool_message("get_weather", json.dumps({"temperature_c": degrees, "condition": random_source.choice(["sunny", "cloudy", "rainy"])})) for degrees in (warm, cold)]
        messages = [{"role": "user", "content": random_source.choice([f"Is it warmer in {first} or in {second}?", f"Where is it warmer right now, {first} or {second}?", f"Compare the temperature in {first} and {second}."])}]
        messages += [call_message(calls), *results] if random_source.random() < 0.5 else [call_message(calls[:1]), results[0], call_message(calls[1:]), results[1]]
        messages.append({"role": "assistant", "content": f"It is warmer in {winner}: {first} has {warm} °C and {second} has {cold} °C."})
        needed = ["get_weather"]
    elif choice == 3:
        path, command, purpose, output, says = random_source.choice([("server", "pytest -q", "the tests", "1 failed, 11 passed", "one of the 12 tests failed"), ("parser", "cargo test", "the tests", "34 passed; 0 failed", "all 34 tests passed"),
                                                                     ("website", "npm test", "the tests", "20 passed, 0 failed", "all 20 tests passed")])
        edit = _BY_NAME["edit_file"].make(random_source)
        messages = [{"role": "user", "content": f"In {edit['path']}, replace \"{edit['old']}\" by \"{edit['new']}\" and run `{command}` afterwards."}, call_message([("edit_file", {"path": edit["path"], "old": edit["old"], "new": edit["new"]})]),
                    tool_message("edit_file", json.dumps({"replaced": edit["replaced"]})), call_message([("run_command", {"command": command})]), tool_message("run_command", output), {"role": "assistant", "content": f"I changed `{edit['path']}` and ran {purpose}: {says}."}]
        needed = ["edit_file", "run_command"]
    elif choice == 4:
        path, content, says = random_source.choice(values.FILES)
        copy = "copy_of_" + path.rsplit("/", 1)[-1]
        messages = [{"role": "user", "content": random_source.choice([f"Read {path} and write its content to {copy}.", f"Copy the text of {path} into a new file {copy}."])}, call_message([("read_file", {"path": path})]), tool_message("read_file", content),
                    call_message([("write_file", {"path": copy, "content": content})]), tool_message("write_file", json.dumps({"written": len(content), "path": copy})), {"role": "assistant", "content": f"I read `{path}` and wrote its content to `{copy}`. {says}"}]
        needed = ["read_file", "write_file"]
    else:
        price, count = random_source.randint(3, 60), random_source.randint(2, 9)
        product = random_source.choice(["desk lamp", "water bottle", "chess set", "notebook", "wool scarf", "coffee mug"])
        order = random_source.randint(1000, 9999)
        messages = [{"role": "user", "content": f"One {product} costs {price} dollars. Calculate what {count} of them cost and order {count}."}, call_message([("calculator", {"expression": f"{count} * {price}"})]), tool_message("calculator", str(count * price)),
                    call_message([("order_product", {"product": product, "quantity": count})]), tool_message("order_product", json.dumps({"order": order})), {"role": "assistant", "content": f"{count} x {product} cost {count * price} dollars. I placed the order; its number is {order}."}]
        needed = ["calculator", "order_product"]
    return _finish(random_source, messages, _tool_list(random_source, [_BY_NAME[name] for name in needed]))


_SOCIAL = [("Hello!", "Hello! How can I help you?"), ("Hi", "Hi! What can I do for you?"), ("Thanks for your help!", "You're welcome!"), ("Good morning!", "Good morning! What can I do for you today?"), ("How are you?", "I'm fine, thank you. What can I do for you?"),
           ("Bye!", "Goodbye! Have a nice day."), ("You are great.", "Thank you! I'm glad I could help."), ("What tools do you have?", ""), ("Good night.", "Good night! Sleep well."), ("Never mind.", "All right. Let me know if you need anything.")]


def _no_tool(random_source: random.Random) -> Conversation:
    """Tools are given, but the answer needs none."""
    avoided = {"calculator", "define_word", "search_web", "convert_units", "get_date", "get_time", "get_weather", "random_number", "translate", "get_news", "get_events"}
    tools = [tool for tool in random_source.sample(TOOLS, 5) if tool.name not in avoided][:random_source.randint(1, 4)] or [_BY_NAME["set_timer"]]
    kind = random_source.choices(["fact", "arithmetic", "identity", "social", "unable"], [4, 2, 1, 2, 3])[0]
    if kind == "unable":
        other = random_source.choice([tool for tool in TOOLS if tool not in tools and tool.name not in ("calculator", "define_word", "convert_units", "translate", "check_spelling", "query_database") and tool.parameters])
        related = {"send_email", "send_message", "create_note", "create_event", "read_file", "write_file", "run_command"}
        if any(tool.name in related for tool in tools) and other.name in related | {"append_file", "copy_file", "move_file", "delete_file", "list_directory", "search_files", "edit_file", "run_tests", "git_commit", "count_words", "install_package", "compress_folder"}:
            other = _BY_NAME["play_music"]
            tools = [tool for tool in tools if tool.name != "play_music"] or [_BY_NAME["set_timer"]]
        drawn = other.make(random_source)
        question = _upper(random_source.choice(other.requests[:3]).format(**drawn))
        answer = random_source.choice(["I'm sorry, I don't have a tool to {a}.", "I can't {a}, because none of my tools can do that.", "Sorry, I have no way to {a} with the tools I have."]).format(a=other.action.format(**drawn))
    elif kind == "social":
        question, answer = random_source.choice(_SOCIAL)
        if not answer:
            names = [f"`{tool.name}`" for tool in tools]
            answer = f"I can use {', '.join(names[:-1]) + ' and ' if len(names) > 1 else ''}{names[-1]}."
    else:
        question, answer = {"fact": fact, "arithmetic": arithmetic, "identity": identity}[kind](random_source)
    schemas = [tool.schema() for tool in tools]
    return _finish(random_source, [{"role": "user", "content": question}, {"role": "assistant", "content": answer}], schemas)


def tool_conversation(random_source: random.Random) -> Conversation:
    """A conversation with tools."""
    makers = [_single, _missing, _two_requests, _chain, _no_tool]
    return random_source.choices(makers, [60, 7, 10, 10, 13])[0](random_source)
