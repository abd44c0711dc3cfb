"""Tools as agents have them: schema, phrasings of requests, a plausible result and answers that use it.

A tool's `make` draws the values of one use. `requests` and `answers` are format strings over these values; `arguments`
names the values that are passed, by parameter; `result` builds what the tool returns.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import tool_values as values

Values = dict[str, object]


@dataclass(frozen=True)
class Tool:
    """One tool; see the module's description."""

    name: str
    description: str
    parameters: dict[str, tuple[str, str]]  # name: (JSON type, description)
    make: Callable[[random.Random], Values]
    requests: list[str]
    answers: list[str]
    result: Callable[[Values], object]
    action: str                              # "get the weather in {city}", for messages about errors
    optional: tuple[str, ...] = ()
    missing: tuple[str, str, str] | None = None  # request without an argument, the question back, the user's reply
    enums: dict[str, list[str]] = field(default_factory=dict)

    def schema(self) -> dict[str, object]:
        """The JSON-schema description that is put before a model."""
        properties: dict[str, object] = {}
        for name, (kind, description) in self.parameters.items():
            entry: dict[str, object] = {"type": kind, "description": description}
            if name in self.enums:
                entry["enum"] = self.enums[name]
            properties[name] = entry
        required = [name for name in self.parameters if name not in self.optional]
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": {
            "type": "object", "properties": properties, "required": required}}}

    def arguments(self, drawn: Values) -> dict[str, object]:
        """The arguments of the call: every parameter that has a value."""
        return {name: drawn[name] for name in self.parameters if name in drawn}

    def result_text(self, drawn: Values) -> str:
        """The result as the text of a tool message."""
        result = self.result(drawn)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


S, I, N = "string", "integer", "number"


def _weather(r: random.Random) -> Values:
    return {"city": r.choice(values.CITIES), "temperature": r.randint(-5, 34), "sky": r.choice(["sunny", "cloudy", "rainy", "windy", "foggy", "partly cloudy"])}


def _forecast(r: random.Random) -> Values:
    return {"city": r.choice(values.CITIES), "day": r.choice(values.DAYS), "high": (high := r.randint(5, 34)), "low": high - r.randint(4, 11), "sky": r.choice(["sun", "rain", "clouds", "showers", "wind"])}


def _file(r: random.Random) -> Values:
    path, content, says = r.choice(values.FILES)
    return {"path": path, "content_read": content, "says": says}


def _write(r: random.Random) -> Values:
    return {"path": r.choice(["notes.txt", "hello.txt", "todo.md", "list.txt", "message.txt", "ideas.md", "log.txt", "plan.txt"]),
            "content": r.choice(["Hello, world!", "Buy bread and milk", "Call Anna at noon", "The meeting is on Friday", "Remember the tickets", "First draft", "Water the plants", "Done"])}


def _folder(r: random.Random) -> Values:
    path, names = r.choice([folder for folder in values.FOLDERS if folder[1]])
    return {"path": path, "names": names, "count": len(names), "listing": ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]}


def _command(r: random.Random) -> Values:
    command, purpose, output, says = r.choice(values.COMMANDS)
    return {"command": command, "purpose": purpose, "output": output, "says": says}


def _search(r: random.Random) -> Values:
    query, title, snippet, says = r.choice(values.SEARCHES)
    return {"query": query, "title": title, "snippet": snippet, "says": says}


def _calculation(r: random.Random) -> Values:
    operator = r.choice("+-*")
    a, b = r.randint(12, 999), r.randint(12, 99)
    value = {"+": a + b, "-": a - b, "*": a * b}[operator]
    return {"expression": f"{a} {operator} {b}", "value": value, "words": f"{a} {dict(zip('+-*', ['plus', 'minus', 'times']))[operator]} {b}"}


def _event(r: random.Random) -> Values:
    return {"title": r.choice(values.EVENTS), "day": r.choice(values.DAYS), "time": r.choice(values.TIMES)}


def _email(r: random.Random) -> Values:
    person = r.choice(values.PEOPLE)
    text = r.choice(values.MESSAGES)
    return {"person": person, "to": f"{person.lower()}@example.com", "text": text, "subject": r.choice(["Quick note", "Update", "For your information"]),
            "body": text[0].upper() + text[1:] + "."}


def _currency(r: random.Random) -> Values:
    names = {"USD": "US dollars", "EUR": "euros", "GBP": "British pounds", "CHF": "Swiss francs", "CAD": "Canadian dollars", "AUD": "Australian dollars"}
    source, target = r.sample(list(names), 2)
    amount, rate = r.choice([5, 10, 20, 25, 50, 75, 100, 150, 200, 500]), r.choice([0.74, 0.8, 0.92, 1.1, 1.25, 1.36, 1.5])
    return {"amount": amount, "from": source, "to": target, "from_name": names[source], "to_name": names[target], "rate": rate, "converted": round(amount * rate, 2)}


def _translation(r: random.Random) -> Values:
    text, targets = r.choice(values.TRANSLATIONS)
    language = r.choice(list(targets))
    return {"text": text, "target_language": language, "translated": targets[language]}


_UNITS = [("kilometers", "miles", 0.621371), ("miles", "kilometers", 1.609344), ("kilograms", "pounds", 2.204623), ("pounds", "kilograms", 0.453592), ("meters", "feet", 3.28084),
          ("feet", "meters", 0.3048), ("inches", "centimeters", 2.54), ("liters", "gallons", 0.264172)]


def _units(r: random.Random) -> Values:
    source, target, factor = r.choice(_UNITS)
    value = r.choice([2, 3, 5, 7, 8, 10, 12, 15, 20, 25, 30, 42, 50, 80, 100])
    return {"value": value, "from_unit": source, "to_unit": target, "converted": round(value * factor, 2)}


def _database(r: random.Random) -> Values:
    question, query, noun = r.choice(values.TABLES)
    return {"question": question, "query": query, "noun": noun, "count": r.randint(2, 950)}


def _edit(r: random.Random) -> Values:
    path, old, new = r.choice([("main.py", "colour", "color"), ("config.toml", "port = 80", "port = 8080"), ("README.md", "teh", "the"), ("app.js", "var total", "let total"), ("src/lib.rs", "get_vlaue", "get_value"),
                               ("index.html", "Welcom", "Welcome"), ("notes.txt", "Monday", "Tuesday"), ("settings.json", "false", "true")])
    return {"path": path, "old": old, "new": new, "replaced": r.randint(1, 4)}


def _person(r: random.Random) -> Values:
    person = r.choice(values.PEOPLE)
    return {"name": person, "phone": f"555-{r.randint(1000, 9999)}", "email": f"{person.lower()}@example.com"}


def _trip(r: random.Random) -> Values:
    origin, destination = r.sample(values.EUROPEAN_CITIES, 2)
    distance = r.randint(210, 1400)
    minutes = distance * 60 // 95 // 5 * 5
    return {"origin": origin, "destination": destination, "day": r.choice(values.DAYS), "time": r.choice(values.TIMES), "price": r.randint(29, 240),
            "duration": f"{minutes // 60} h {minutes % 60:02d} min", "distance": distance}


TOOLS: list[Tool] = [
    Tool("get_weather", "Get the current weather of a city.", {"city": (S, "Name of the city")}, _weather,
         ["What's the weather in {city}?", "How is the weather in {city} right now?", "Is it warm in {city} today?", "Do I need an umbrella in {city}?", "Tell me the current weather in {city}.", "weather {city}", "I'm going out in {city}. What is the weather like?"],
         ["It is {temperature} degrees Celsius and {sky} in {city} right now.", "In {city} it is currently {sky}, with {temperature} °C.", "Right now {city} has {temperature} °C and the weather is {sky}."],
         lambda v: {"temperature_c": v["temperature"], "condition": v["sky"]}, "get the weather in {city}", missing=("What's the weather like?", "Which city are you interested in?", "{city}, please.")),
    Tool("get_forecast", "Get the weather forecast of a city for a day of the week.", {"city": (S, "Name of the city"), "day": (S, "Day of the week")}, _forecast,
         ["What will the weather be in {city} on {day}?", "Forecast for {city} on {day}, please.", "Will it rain in {city} on {day}?", "I'm in {city} on {day}. How warm will it be?"],
         ["On {day}, {city} can expect {sky} with {low} to {high} degrees Celsius.", "The forecast for {city} on {day}: {sky}, between {low} and {high} °C."],
         lambda v: {"low_c": v["low"], "high_c": v["high"], "condition": v["sky"]}, "get the forecast for {city}"),
    Tool("read_file", "Read a text file.", {"path": (S, "Path of the file")}, _file,
         ["What is in {path}?", "Read {path} for me.", "Please open {path} and tell me what it says.", "Show me what {path} contains.", "Can you summarize {path}?", "Look at {path}, please.", "cat {path} and explain it"],
         ["{says}", "I read `{path}`. {says}"], lambda v: v["content_read"], "read {path}", missing=("Can you read a file for me?", "Sure. What is the path of the file?", "{path}")),
    Tool("write_file", "Write text to a file.", {"path": (S, "Path of the file"), "content": (S, "Text to write")}, _write,
         ["Write \"{content}\" to {path}.", "Save the text \"{content}\" in {path}.", "Create a file {path} with the content \"{content}\".", "Please put \"{content}\" into {path}.", "Make a file called {path} that says \"{content}\"."],
         ["Done. I wrote the text to `{path}`.", "The file `{path}` now contains \"{content}\".", "I saved it in `{path}`."], lambda v: {"written": len(str(v["content"])), "path": v["path"]}, "write to {path}",
         missing=("Save \"{content}\" to a file.", "What should the file be called?", "{path}")),
    Tool("append_file", "Append a line to a file.", {"path": (S, "Path of the file"), "line": (S, "Line to append")}, lambda r: {"path": r.choice(["todo.md", "notes.txt", "shopping.txt", "log.txt"]), "line": r.choice(values.TASKS)},
         ["Add \"{line}\" to {path}.", "Append the line \"{line}\" to {path}.", "Put \"{line}\" at the end of {path}."], ["I added \"{line}\" to `{path}`.", "Done: \"{line}\" is now the last line of `{path}`."],
         lambda v: {"ok": True}, "append to {path}"),
    Tool("list_directory", "List the files of a folder.", {"path": (S, "Path of the folder")}, _folder,
         ["What files are in {path}?", "List the files in the folder {path}.", "Show me the contents of {path}.", "Which files does the folder {path} have?", "ls {path}", "What do I have in {path}?"],
         ["The folder `{path}` contains {count} entries: {listing}.", "In `{path}` there are {listing}."], lambda v: v["names"], "list the folder {path}",
         missing=("List the files, please.", "Of which folder?", "{path}")),
    Tool("run_command", "Run a shell command and return its output.", {"command": (S, "The command line")}, _command,
         ["Run `{command}`.", "Please {purpose}.", "Can you {purpose}?", "Execute `{command}` and tell me the result.", "I'd like you to {purpose}.", "{purpose}, please"], ["{says}"], lambda v: v["output"], "run `{command}`"),
    Tool("search_web", "Search the web.", {"query": (S, "Search terms")}, _search,
         ["Search the web for {query}.", "Look up {query}.", "Can you find out something about {query}?", "Please search for \"{query}\".", "google {query}", "What does the internet say about {query}?"], ["{says}", "Here is what I found: {snippet}"],
         lambda v: [{"title": v["title"], "snippet": v["snippet"]}], "search the web", missing=("Search the web for me.", "What should I search for?", "{query}")),
    Tool("calculator", "Evaluate an arithmetic expression.", {"expression": (S, "For example 2 + 3 * 4")}, _calculation,
         ["What is {words}?", "Calculate {expression}.", "How much is {words}?", "Compute {expression} please.", "{expression} = ?", "I need the result of {words}."], ["{words} is {value}.", "The result is {value}.", "{expression} = {value}."], lambda v: str(v["value"]), "compute {expression}"),
    Tool("create_event", "Create a calendar event.", {"title": (S, "Title"), "day": (S, "Day of the week"), "time": (S, "Start, as HH:MM")}, _event,
         ["Add \"{title}\" to my calendar on {day} at {time}.", "Schedule a {title} for {day} at {time}.", "Put {title} in my calendar: {day}, {time}.", "I have a {title} on {day} at {time}. Please save it."],
         ["I added \"{title}\" to your calendar on {day} at {time}.", "Done: {title}, {day} at {time}.", "Your calendar now has \"{title}\" on {day} at {time}."], lambda v: {"status": "created"}, "create the event \"{title}\"",
         missing=("Add \"{title}\" to my calendar on {day}.", "At what time does it start?", "At {time}.")),
    Tool("get_events", "Get the calendar events of a day.", {"day": (S, "Day of the week")}, _event, ["What is on my calendar on {day}?", "Do I have anything on {day}?", "What are my plans for {day}?", "Am I free on {day}?"],
         ["On {day} you have one event: {title} at {time}.", "There is one thing on {day}: {title} at {time}."], lambda v: [{"title": v["title"], "time": v["time"]}], "read the calendar for {day}"),
    Tool("send_email", "Send an email.", {"to": (S, "Address of the recipient"), "subject": (S, "Subject line"), "body": (S, "Text of the email")}, _email,
         ["Send an email to {to} with the subject \"{subject}\" and the text \"{body}\"", "Email {to}, subject \"{subject}\": \"{body}\"", "Please write to {to}. Subject: {subject}. Text: {body}"],
         ["I sent the email to {to}.", "Your email \"{subject}\" is on its way to {to}.", "Done. The email to {to} was sent."], lambda v: {"status": "sent"}, "send the email to {to}"),
    Tool("send_message", "Send a text message to a contact.", {"recipient": (S, "Name of the contact"), "text": (S, "Text of the message")}, lambda r: {"recipient": r.choice(values.PEOPLE), "text": r.choice(values.MESSAGES)},
         ["Text {recipient} that {text}.", "Send {recipient} a message: {text}.", "Tell {recipient} that {text}.", "Message {recipient}: {text}"], ["I sent {recipient} the message.", "Done. {recipient} got your message: \"{text}\"."], lambda v: {"status": "delivered"}, "send the message to {recipient}",
         missing=("Send a message that {text}.", "Who should receive it?", "{recipient}")),
    Tool("query_database", "Run a read-only SQL query.", {"query": (S, "SQL SELECT statement")}, _database, ["{question}", "Check the database: {question}", "{question} Please look it up in the database.", "Use SQL to answer this: {question}"],
         ["There are {count} {noun}.", "The database has {count} {noun}.", "According to the database there are {count} {noun}."], lambda v: [[v["count"]]], "query the database"),
    Tool("convert_currency", "Convert an amount of money.", {"amount": (N, "Amount"), "from": (S, "Currency code"), "to": (S, "Currency code")}, _currency,
         ["Convert {amount} {from} to {to}.", "How much is {amount} {from_name} in {to_name}?", "What are {amount} {from_name} in {to_name}?", "{amount} {from} in {to}?"],
         ["{amount} {from} is {converted:.2f} {to}.", "{amount} {from_name} are {converted:.2f} {to_name} at a rate of {rate}."], lambda v: {"rate": v["rate"], "result": v["converted"]}, "convert the amount"),
    Tool("set_timer", "Start a timer.", {"minutes": (I, "Duration in minutes")}, lambda r: {"minutes": r.choice([2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 45, 60, 90])},
         ["Set a timer for {minutes} minutes.", "Start a {minutes} minute timer.", "Remind me in {minutes} minutes with a timer.", "Timer, {minutes} minutes.", "Can you count down {minutes} minutes?"], ["The timer is set for {minutes} minutes.", "Okay, {minutes} minutes start now.", "I started a timer for {minutes} minutes."],
         lambda v: {"status": "running"}, "start the timer", missing=("Set a timer, please.", "For how many minutes?", "{minutes} minutes.")),
    Tool("set_alarm", "Set an alarm.", {"time": (S, "Time as HH:MM")}, lambda r: {"time": r.choice(["05:30", "06:00", "06:15", "06:30", "06:45", "07:00", "07:20", "07:30", "08:00"])}, ["Wake me up at {time}.", "Set an alarm for {time}.", "I have to get up at {time}. Set an alarm.", "Alarm at {time} please"],
         ["Your alarm is set for {time}.", "I will wake you at {time}.", "Done, the alarm rings at {time}."], lambda v: {"status": "set"}, "set the alarm", missing=("Set an alarm for tomorrow.", "What time should it ring?", "{time}")),
    Tool("convert_units", "Convert a value between units.", {"value": (N, "Value"), "from_unit": (S, "Unit to convert from"), "to_unit": (S, "Unit to convert to")}, _units,
         ["Convert {value} {from_unit} to {to_unit}.", "How many {to_unit} are {value} {from_unit}?", "What is {value} {from_unit} in {to_unit}?", "{value} {from_unit} in {to_unit}"], ["{value} {from_unit} are {converted} {to_unit}.", "That is {converted} {to_unit}."], lambda v: str(v["converted"]), "convert the units"),
    Tool("translate", "Translate a text.", {"text": (S, "Text to translate"), "target_language": (S, "Language to translate into")}, _translation,
         ["Translate \"{text}\" into {target_language}.", "How do you say \"{text}\" in {target_language}?", "What is \"{text}\" in {target_language}?", "Say \"{text}\" in {target_language}."], ["In {target_language}, \"{text}\" is \"{translated}\".", "\"{translated}\""], lambda v: {"translation": v["translated"]}, "translate the text",
         missing=("Translate \"{text}\".", "Into which language?", "Into {target_language}.")),
    Tool("get_time", "Get the current local time of a city.", {"city": (S, "Name of the city")}, lambda r: {"city": r.choice(values.CITIES), "time": f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"}, ["What time is it in {city}?", "Tell me the time in {city}.", "current time {city}", "How late is it in {city} now?"],
         ["It is {time} in {city}.", "The local time in {city} is {time}."], lambda v: {"local_time": v["time"]}, "get the time in {city}"),
    Tool("edit_file", "Replace a text in a file.", {"path": (S, "Path of the file"), "old": (S, "Text to replace"), "new": (S, "New text")}, _edit,
         ["Replace \"{old}\" by \"{new}\" in {path}.", "In {path}, change \"{old}\" to \"{new}\".", "Please edit {path}: \"{old}\" should be \"{new}\"."], ["Done. I changed \"{old}\" to \"{new}\" in `{path}`.", "`{path}` now says \"{new}\" instead of \"{old}\"."], lambda v: {"replaced": v["replaced"]}, "edit {path}"),
    Tool("delete_file", "Delete a file.", {"path": (S, "Path of the file")}, lambda r: {"path": r.choice(["old.txt", "temp.log", "draft.md", "copy.zip", "cache.db", "backup.tar", "test.tmp"])}, ["Delete {path}.", "Remove the file {path}.", "Please get rid of {path}.", "rm {path}"], ["I deleted `{path}`.", "`{path}` is gone."], lambda v: {"status": "deleted"}, "delete {path}"),
    Tool("copy_file", "Copy a file.", {"source": (S, "Path of the file"), "destination": (S, "Path of the copy")}, lambda r: {"source": (name := r.choice(["report.pdf", "main.py", "notes.txt", "photo.jpg", "data.csv"])), "destination": r.choice(["backup/", "archive/", "shared/"]) + name},
         ["Copy {source} to {destination}.", "Make a copy of {source} at {destination}."], ["I copied `{source}` to `{destination}`."], lambda v: {"status": "copied"}, "copy {source}"),
    Tool("move_file", "Move or rename a file.", {"source": (S, "Old path"), "destination": (S, "New path")}, lambda r: dict(zip(("source", "destination"), r.choice([("draft.txt", "final.txt"), ("img1.jpg", "beach.jpg"), ("a.py", "parser.py"), ("old_notes.md", "notes.md"), ("report.doc", "archive/report.doc")]))),
         ["Rename {source} to {destination}.", "Move {source} to {destination}."], ["`{source}` is now `{destination}`."], lambda v: {"status": "moved"}, "move {source}"),
    Tool("search_files", "Search for a text in the files of a folder.", {"pattern": (S, "Text to search for"), "path": (S, "Folder to search in")}, lambda r: {"pattern": r.choice(["TODO", "parse_config", "password", "deprecated", "unwrap", "fixme", "import os"]), "path": r.choice(["src", "docs", "tests", "scripts"]), "file": r.choice(["main.rs", "config.py", "index.md", "build.sh"]), "line": r.randint(2, 180)},
         ["Search for \"{pattern}\" in {path}.", "Where does \"{pattern}\" occur in {path}?", "grep {pattern} {path}", "Find \"{pattern}\" in the folder {path}."], ["I found one match: `{path}/{file}`, line {line}.", "\"{pattern}\" occurs once, in `{path}/{file}` at line {line}."], lambda v: f"{v['path']}/{v['file']}:{v['line']}: {v['pattern']}", "search in {path}"),
    Tool("get_stock_price", "Get the price of a stock.", {"symbol": (S, "Ticker symbol")}, lambda r: {"symbol": r.choice(["ABCD", "XYZ", "LITH", "OAKS", "RIVR", "SUNN"]), "price": round(r.uniform(8, 320), 2)}, ["What is the price of {symbol}?", "How much is {symbol} trading at?", "stock price {symbol}"], ["{symbol} is trading at {price:.2f} dollars.", "The price of {symbol} is {price:.2f} dollars."], lambda v: {"price": v["price"], "currency": "USD"}, "get the price of {symbol}"),
    Tool("find_contact", "Find a contact in the address book.", {"name": (S, "Name of the contact")}, _person, ["What is {name}'s phone number?", "Find {name} in my contacts.", "How can I reach {name}?", "Do you have {name}'s number?"], ["{name}'s number is {phone}, and the email address is {email}.", "You can reach {name} at {phone} or {email}."], lambda v: {"phone": v["phone"], "email": v["email"]}, "find {name}"),
    Tool("add_task", "Add a task to the to-do list.", {"task": (S, "What to do")}, lambda r: {"task": r.choice(values.TASKS)}, ["Add \"{task}\" to my to-do list.", "I must not forget to {task}. Put it on my list.", "New task: {task}", "Remember that I have to {task}."], ["\"{task}\" is on your to-do list.", "I added it to your list: {task}."], lambda v: {"status": "added"}, "add the task"),
    Tool("list_tasks", "List the open tasks.", {}, lambda r: dict(zip(("one", "two"), r.sample(values.TASKS, 2))), ["What is on my to-do list?", "Show my tasks.", "What do I still have to do?", "List my open tasks."], ["You have two open tasks: {one} and {two}.", "Two things are on your list: {one}, and {two}."], lambda v: [v["one"], v["two"]], "read the to-do list"),
    Tool("set_reminder", "Set a reminder.", {"text": (S, "What to be reminded of"), "time": (S, "Time as HH:MM")}, lambda r: {"text": r.choice(values.TASKS), "time": r.choice(values.TIMES)}, ["Remind me to {text} at {time}.", "Set a reminder at {time}: {text}.", "At {time} I have to {text}. Remind me, please."], ["I will remind you at {time} to {text}.", "Reminder set for {time}: {text}."], lambda v: {"status": "set"}, "set the reminder",
         missing=("Remind me to {text}.", "At what time should I remind you?", "At {time}.")),
    Tool("play_music", "Play music.", {"query": (S, "What to play")}, lambda r: {"query": r.choice(values.SONGS)}, ["Play {query}.", "I'd like to hear {query}.", "Put on {query}, please.", "Can you play {query}?"], ["Now playing {query}. Enjoy!", "Here you go: {query}."], lambda v: {"status": "playing"}, "play {query}"),
    Tool("set_light", "Switch a light on or off.", {"room": (S, "Room"), "state": (S, "New state")}, lambda r: {"room": r.choice(["kitchen", "bedroom", "hall", "living room", "bathroom", "garage"]), "state": r.choice(["on", "off"])}, ["Turn {state} the light in the {room}.", "Switch the {room} light {state}.", "{room} light {state}, please"], ["The light in the {room} is now {state}.", "Done, the {room} light is {state}."], lambda v: {"status": "ok"}, "switch the light", enums={"state": ["on", "off"]}),
    Tool("set_temperature", "Set the thermostat.", {"degrees": (I, "Temperature in degrees Celsius")}, lambda r: {"degrees": r.randint(16, 25)}, ["Set the heating to {degrees} degrees.", "Make it {degrees} degrees in here.", "Thermostat to {degrees}, please."], ["The thermostat is set to {degrees} degrees.", "It will soon be {degrees} degrees."], lambda v: {"status": "ok"}, "set the thermostat"),
    Tool("search_flights", "Search for flights.", {"origin": (S, "City of departure"), "destination": (S, "City of arrival"), "day": (S, "Day of the week")}, _trip, ["Find a flight from {origin} to {destination} on {day}.", "I need to fly from {origin} to {destination} on {day}.", "Flights {origin} to {destination} on {day}?"], ["There is a flight from {origin} to {destination} on {day} at {time} for {price} euros.", "On {day} you can fly at {time}; it costs {price} euros."], lambda v: [{"departure": v["time"], "price_eur": v["price"]}], "search for flights",
         missing=("Find a flight from {origin} to {destination}.", "On which day would you like to fly?", "On {day}.")),
    Tool("search_trains", "Search for train connections.", {"origin": (S, "Station of departure"), "destination": (S, "Station of arrival")}, _trip, ["When is the next train from {origin} to {destination}?", "Train from {origin} to {destination}, please.", "How do I get from {origin} to {destination} by train?"], ["The next train from {origin} to {destination} leaves at {time} and takes {duration}.", "There is a train at {time}. The trip takes {duration}."], lambda v: {"departure": v["time"], "duration": v["duration"]}, "find a train"),
    Tool("get_directions", "Get the distance and travel time between two places.", {"origin": (S, "Start"), "destination": (S, "Destination")}, _trip, ["How far is it from {origin} to {destination}?", "How long does it take to drive from {origin} to {destination}?", "Directions from {origin} to {destination}"], ["It is {distance} kilometers from {origin} to {destination}; by car it takes {duration}.", "The way from {origin} to {destination} is {distance} kilometers long and takes about {duration}."], lambda v: {"distance_km": v["distance"], "duration": v["duration"]}, "get directions"),
    Tool("book_table", "Book a table in a restaurant.", {"restaurant": (S, "Name of the restaurant"), "people": (I, "Number of people"), "time": (S, "Time as HH:MM")}, lambda r: {"restaurant": r.choice(["Luna", "Green Garden", "Bella Vista", "The Old Mill", "Sakura", "Casa Rosa"]), "people": r.randint(2, 8), "time": r.choice(["18:00", "18:30", "19:00", "19:30", "20:00"])}, ["Book a table for {people} at {restaurant} at {time}.", "Reserve a table at {restaurant} for {people} people at {time}.", "We are {people} people and want to eat at {restaurant} at {time}."], ["Your table for {people} at {restaurant} is booked for {time}.", "Done: {restaurant}, {people} people, {time}."], lambda v: {"status": "confirmed"}, "book the table"),
    Tool("search_recipes", "Search for recipes by ingredients.", {"ingredients": (S, "Ingredients")}, lambda r: {"ingredients": r.choice(values.INGREDIENTS), "recipe": r.choice(["a quick soup", "a simple salad", "an oven bake", "a curry", "a pan dish"]), "minutes": r.choice([15, 20, 25, 30, 40])}, ["What can I cook with {ingredients}?", "Find a recipe with {ingredients}.", "I have {ingredients}. Any recipe?"], ["With {ingredients} you can make {recipe} in {minutes} minutes.", "How about {recipe} with {ingredients}? It takes {minutes} minutes."], lambda v: [{"title": v["recipe"], "minutes": v["minutes"]}], "search for recipes"),
    Tool("define_word", "Look up a word in a dictionary.", {"word": (S, "Word")}, lambda r: dict(zip(("word", "meaning"), r.choice([("brave", "ready to face danger or pain"), ("meadow", "a field of grass and wild flowers"), ("harvest", "the time when crops are gathered"), ("fragile", "easily broken"), ("horizon", "the line where the sky seems to meet the earth"), ("rumor", "a story that may not be true"), ("ancient", "very old"), ("curious", "eager to know or learn something")]))), ["What does \"{word}\" mean?", "Look up the word \"{word}\".", "Define \"{word}\".", "Meaning of \"{word}\"?"], ["\"{word}\" means {meaning}.", "The dictionary says: {meaning}."], lambda v: {"definition": v["meaning"]}, "look up the word"),
    Tool("get_news", "Get the latest headline about a topic.", {"topic": (S, "Topic")}, lambda r: dict(zip(("topic", "headline"), r.choice([("sports", "Local team wins the cup"), ("science", "New telescope sends first pictures"), ("weather", "Warm weekend expected"), ("technology", "New chip uses half the power"), ("music", "Jazz festival sold out"), ("business", "Bakery chain opens ten shops")]))), ["What's new in {topic}?", "Give me the latest {topic} news.", "Any news about {topic}?"], ["The latest headline in {topic}: \"{headline}\".", "Here is the newest one: \"{headline}\"."], lambda v: [v["headline"]], "get the news"),
    Tool("count_words", "Count the words of a file.", {"path": (S, "Path of the file")}, lambda r: {"path": r.choice(["essay.txt", "report.md", "letter.txt", "story.txt", "chapter1.txt"]), "count": r.randint(120, 4800)}, ["How many words does {path} have?", "Count the words in {path}.", "word count of {path}"], ["`{path}` has {count} words."], lambda v: {"words": v["count"]}, "count the words of {path}"),
    Tool("run_tests", "Run the tests of a project.", {"path": (S, "Folder of the project")}, lambda r: {"path": r.choice(["server", "client", "core", "website", "parser"]), "passed": r.randint(5, 90), "failed": 0}, ["Run the tests in {path}.", "Do the tests of {path} pass?", "Test the project {path}."], ["Yes, all {passed} tests in `{path}` pass.", "All {passed} tests passed."], lambda v: {"passed": v["passed"], "failed": v["failed"]}, "run the tests in {path}"),
    Tool("git_commit", "Commit the staged changes.", {"message": (S, "Commit message")}, lambda r: {"message": r.choice(["Fix the parser", "Add a test", "Update the readme", "Remove dead code", "Rename the config file", "Handle empty input"]), "hash": "".join(r.choice("0123456789abcdef") for _ in range(7))}, ["Commit the changes with the message \"{message}\".", "Make a commit: \"{message}\"", "git commit with \"{message}\""], ["Committed as {hash}: \"{message}\".", "Done. The new commit is {hash}."], lambda v: {"commit": v["hash"]}, "commit the changes"),
    Tool("create_issue", "Open an issue in the tracker.", {"title": (S, "Title of the issue")}, lambda r: {"title": r.choice(["Crash on empty input", "Typo in the help text", "Slow start on Windows", "Button is hidden on small screens", "Login fails after an update"]), "number": r.randint(12, 990)}, ["Open an issue titled \"{title}\".", "Create an issue: {title}", "Please report this bug: {title}"], ["I opened issue #{number}: {title}.", "The issue \"{title}\" has the number {number}."], lambda v: {"number": v["number"]}, "open the issue"),
    Tool("http_get", "Fetch a web page.", {"url": (S, "Address")}, lambda r: dict(zip(("url", "title"), r.choice([("https://example.com", "Example Domain"), ("https://example.org/news", "News of the week"), ("https://example.net/help", "Help center")]))), ["Fetch {url} and tell me its title.", "What is the title of {url}?", "Open {url}."], ["The title of the page is \"{title}\"."], lambda v: {"status": 200, "title": v["title"]}, "fetch {url}"),
    Tool("get_exchange_rate", "Get the exchange rate of two currencies.", {"from": (S, "Currency code"), "to": (S, "Currency code")}, _currency, ["What is the exchange rate from {from} to {to}?", "{from} to {to} rate?", "How many {to} do I get for one {from}?"], ["One {from} is worth {rate} {to}.", "The rate from {from} to {to} is {rate}."], lambda v: {"rate": v["rate"]}, "get the exchange rate"),
    Tool("track_package", "Track a package.", {"number": (S, "Tracking number")}, lambda r: {"number": f"PK{r.randint(100000, 999999)}", "status": r.choice(["in transit", "out for delivery", "delivered", "waiting at the depot"])}, ["Where is my package {number}?", "Track {number}.", "What is the status of package {number}?"], ["Your package {number} is {status}.", "The status of {number} is: {status}."], lambda v: {"status": v["status"]}, "track the package {number}", missing=("Where is my package?", "What is the tracking number?", "{number}")),
    Tool("order_product", "Order a product.", {"product": (S, "Product"), "quantity": (I, "How many")}, lambda r: {"product": r.choice(["desk lamp", "water bottle", "chess set", "notebook", "wool scarf", "coffee mug"]), "quantity": r.randint(1, 6), "order": r.randint(1000, 9999)}, ["Order {quantity} of the product \"{product}\".", "I'd like to buy {quantity} x {product}.", "Please order: {product}, quantity {quantity}."], ["Your order {order} is placed: {quantity} x {product}.", "Done. The order number is {order}."], lambda v: {"order": v["order"]}, "place the order"),
    Tool("get_battery", "Get the battery level of this device.", {}, lambda r: {"level": r.randint(5, 100)}, ["How much battery is left?", "What is my battery level?", "Do I need to charge my laptop?"], ["The battery is at {level} percent.", "You have {level} percent left."], lambda v: {"percent": v["level"]}, "read the battery level"),
    Tool("get_date", "Get today's date.", {}, lambda r: {"date": f"2025-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"}, ["What is today's date?", "Which day is today?", "Today's date, please."], ["Today is {date}.", "The date is {date}."], lambda v: {"date": v["date"]}, "get the date"),
    Tool("random_number", "Draw a random whole number.", {"low": (I, "Smallest value"), "high": (I, "Largest value")}, lambda r: {"low": 1, "high": (high := r.choice([6, 10, 12, 20, 50, 100])), "drawn": r.randint(1, high)}, ["Give me a random number from {low} to {high}.", "Pick a number between {low} and {high}.", "Draw a number from {low} to {high}."], ["Your number is {drawn}.", "I drew {drawn}."], lambda v: str(v["drawn"]), "draw a number"),
    Tool("get_movie_times", "Get the show times of a movie.", {"title": (S, "Title of the movie")}, lambda r: {"title": r.choice(values.MOVIES), "time": r.choice(["17:30", "18:00", "20:15", "20:30", "21:00"])}, ["When is \"{title}\" showing tonight?", "Show times for \"{title}\"?", "I want to watch \"{title}\". When does it start?"], ["\"{title}\" starts at {time}.", "Tonight \"{title}\" is showing at {time}."], lambda v: {"times": [v["time"]]}, "get the show times"),
    Tool("create_note", "Save a note.", {"text": (S, "Text of the note")}, lambda r: {"text": r.choice(values.MESSAGES)}, ["Take a note: {text}.", "Note down that {text}.", "Save this as a note: {text}"], ["I saved the note: \"{text}\".", "Noted."], lambda v: {"status": "saved"}, "save the note"),
    Tool("resize_image", "Resize an image.", {"path": (S, "Path of the image"), "width": (I, "New width in pixels")}, lambda r: {"path": r.choice(["cat.png", "banner.jpg", "logo.png", "photo.jpg"]), "width": r.choice([200, 320, 400, 640, 800, 1024])}, ["Resize {path} to a width of {width} pixels.", "Make {path} {width} pixels wide."], ["`{path}` is now {width} pixels wide."], lambda v: {"status": "ok"}, "resize {path}"),
    Tool("check_spelling", "Check the spelling of a text.", {"text": (S, "Text")}, lambda r: dict(zip(("text", "wrong", "right"), r.choice([("I recieve many letters", "recieve", "receive"), ("We will definately come", "definately", "definitely"), ("It is neccessary", "neccessary", "necessary"), ("See you tommorow", "tommorow", "tomorrow"), ("A seperate room", "seperate", "separate")]))), ["Check the spelling: \"{text}\"", "Is there a spelling mistake in \"{text}\"?", "Spell-check this: {text}"], ["There is one mistake: \"{wrong}\" should be \"{right}\".", "Yes, \"{wrong}\" is spelled \"{right}\"."], lambda v: [{"word": v["wrong"], "suggestion": v["right"]}], "check the spelling"),
    Tool("get_system_info", "Get information on this computer.", {"item": (S, "What to report")}, lambda r: dict(zip(("item", "value"), r.choice([("memory", "16 GB, 9 GB free"), ("cpu", "8 cores at 3.2 GHz"), ("disk", "512 GB, 210 GB free"), ("system", "Linux 6.1")]))), ["What is the {item} of this computer?", "Show me the {item} information.", "{item} info, please"], ["Here is the {item}: {value}."], lambda v: {v["item"]: v["value"]}, "read the system information", enums={"item": ["memory", "cpu", "disk", "system"]}),
    Tool("install_package", "Install a Python package.", {"package": (S, "Name of the package")}, lambda r: {"package": r.choice(["requests", "flask", "numpy", "rich", "pytest", "httpx"]), "version": f"{r.randint(1, 3)}.{r.randint(0, 30)}.{r.randint(0, 9)}"}, ["Install {package}.", "Please install the Python package {package}.", "pip install {package}"], ["I installed {package} {version}.", "The package {package} {version} is installed."], lambda v: {"installed": f"{v['package']}-{v['version']}"}, "install {package}"),
    Tool("compress_folder", "Compress a folder into a zip file.", {"path": (S, "Folder"), "output": (S, "Path of the zip file")}, lambda r: {"path": (name := r.choice(["photos", "src", "reports", "music", "letters"])), "output": f"{name}.zip"}, ["Zip the folder {path} into {output}.", "Compress {path} to {output}."], ["The folder `{path}` is now in `{output}`."], lambda v: {"status": "ok"}, "compress {path}"),
    Tool("get_sunset", "Get the time of sunset in a city.", {"city": (S, "Name of the city")}, lambda r: {"city": r.choice(values.CITIES), "time": f"{r.randint(16, 21)}:{r.randint(10, 59)}"}, ["When does the sun set in {city}?", "Sunset in {city} today?", "What time is sunset in {city}?"], ["The sun sets at {time} in {city} today.", "Sunset in {city} is at {time}."], lambda v: {"sunset": v["time"]}, "get the sunset time"),
    Tool("add_expense", "Record an expense.", {"amount": (N, "Amount in euros"), "category": (S, "Category")}, lambda r: {"amount": round(r.uniform(2, 90), 2), "category": r.choice(["food", "transport", "books", "clothes", "coffee", "rent"])}, ["Record an expense of {amount} euros for {category}.", "I spent {amount} euros on {category}.", "Add {amount} euros under {category}."], ["I recorded {amount} euros for {category}.", "Saved: {amount} euros, {category}."], lambda v: {"status": "saved"}, "record the expense"),
]
