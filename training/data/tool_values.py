"""Values for tool calls: files, people, texts with translations, products and the like."""

from __future__ import annotations

from topic_bank import _items

CITIES = _items("""
Paris; London; Rome; Madrid; Berlin; Vienna; Lisbon; Athens; Oslo; Stockholm; Helsinki; Copenhagen; Dublin; Warsaw; Prague; Budapest; Zurich; Brussels; Amsterdam; Hamburg; Munich; Milan;
Barcelona; Porto; Cairo; Nairobi; Lagos; Tokyo; Osaka; Seoul; Bangkok; Mumbai; Delhi; Singapore; Sydney; Melbourne; Auckland; New York; Boston; Chicago; Seattle; Denver; Toronto; Montreal;
Lima; Bogota; Santiago; Buenos Aires""")
EUROPEAN_CITIES = _items("Paris; Rome; Madrid; Berlin; Vienna; Prague; Budapest; Zurich; Brussels; Amsterdam; Hamburg; Munich; Milan; Barcelona; Warsaw; Copenhagen; Lyon; Venice; Cologne; Krakow")
PEOPLE = _items("""
Anna; Ben; Clara; David; Emma; Felix; Grace; Henry; Ines; Jack; Kate; Leo; Maria; Noah; Olivia; Paul; Rosa; Sam; Tina; Victor; Yusuf; Zoe; Amir; Priya; Sofia; Tom; Lucy; Nina; Oscar; Ravi""")
DAYS = _items("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday")
TIMES = ["08:00", "08:30", "09:00", "09:30", "10:00", "11:00", "11:30", "12:00", "13:00", "14:00", "14:30", "15:00", "16:00", "16:30", "17:00", "18:00", "19:00", "20:00"]
FILES: list[tuple[str, str, str]] = [  # path, content, what it says
    ("notes.txt", "Buy milk.\nCall the dentist.\nReturn the library books.", "It has three notes: buy milk, call the dentist, and return the library books."),
    ("todo.md", "- write report\n- water plants\n- answer Kate", "It lists three tasks: write the report, water the plants, and answer Kate."),
    ("config.json", "{\"port\": 8080, \"debug\": false}", "The port is 8080 and debug mode is off."),
    ("settings.toml", "theme = \"dark\"\nlanguage = \"en\"", "The theme is dark and the language is English."),
    ("README.md", "# Garden\nA small program that reminds you to water your plants.", "It describes Garden, a small program that reminds you to water your plants."),
    ("main.py", "print(\"Hello, world!\")", "It is a Python script with one line that prints \"Hello, world!\"."),
    ("src/lib.rs", "pub fn double(x: i32) -> i32 {\n    x * 2\n}", "It defines one public function, `double`, which returns twice its argument."),
    ("index.html", "<h1>Welcome</h1>\n<p>Our shop opens in May.</p>", "The page has the heading \"Welcome\" and says that the shop opens in May."),
    ("data.csv", "name,age\nAnna,31\nBen,28", "It has two rows: Anna, 31 years old, and Ben, 28 years old."),
    ("requirements.txt", "flask==3.0.0\nrequests==2.32.0", "It pins two packages: flask 3.0.0 and requests 2.32.0."),
    ("server.log", "INFO started\nWARN disk almost full\nINFO stopped", "There is one warning: the disk is almost full. Otherwise the server started and stopped normally."),
    ("recipe.txt", "Pancakes: 2 eggs, 200 g flour, 300 ml milk.", "It is a recipe for pancakes with 2 eggs, 200 g of flour and 300 ml of milk."),
    ("meeting.txt", "Next meeting: Tuesday at 10. Topic: budget.", "The next meeting is on Tuesday at 10, and the topic is the budget."),
    ("package.json", "{\"name\": \"clock\", \"version\": \"1.4.2\"}", "The package is called clock and has version 1.4.2."),
    ("poem.txt", "The wind is old,\nthe night is cold.", "It is a poem of two lines about the wind and a cold night."),
    ("CHANGELOG.md", "## 2.1.0\n- Faster start\n- Fixed a crash on exit", "Version 2.1.0 starts faster and no longer crashes on exit."),
    ("Makefile", "test:\n\tpytest -q", "It has one target, `test`, which runs pytest."),
    ("invoice.txt", "Invoice 1042\nTotal: 86.50 EUR\nDue: 30 June", "Invoice 1042 is for 86.50 EUR and is due on 30 June."),
]
FOLDERS: list[tuple[str, list[str]]] = [
    ("src", ["main.rs", "lib.rs", "config.rs"]), ("docs", ["index.md", "install.md", "usage.md"]), ("photos", ["beach.jpg", "cat.jpg", "party.jpg", "snow.jpg"]),
    ("tests", ["test_add.py", "test_parse.py"]), ("music", ["blue.mp3", "dance.mp3", "rain.mp3"]), ("downloads", ["map.pdf", "ticket.pdf"]),
    ("data", ["users.csv", "orders.csv", "prices.csv"]), ("projects", ["clock", "garden", "website"]), ("backup", ["monday.zip", "tuesday.zip"]),
    ("scripts", ["build.sh", "deploy.sh", "test.sh"]), ("letters", ["anna.txt", "bank.txt"]), ("models", ["small.gguf", "tiny.gguf"]), ("empty", []),
]
COMMANDS: list[tuple[str, str, str, str]] = [  # command, purpose, output, answer
    ("pytest -q", "run the tests", "12 passed in 0.84s", "All 12 tests passed."),
    ("cargo test", "run the Rust tests", "test result: ok. 34 passed; 0 failed", "All 34 tests passed."),
    ("cargo build", "build the project", "Finished dev profile in 3.2s", "The build finished without errors in 3.2 seconds."),
    ("git status --short", "show the changed files", " M src/main.rs\n?? notes.txt", "One file is modified, `src/main.rs`, and one is new and untracked, `notes.txt`."),
    ("git log --oneline -1", "show the last commit", "a1b2c3d Fix the parser", "The last commit is a1b2c3d, \"Fix the parser\"."),
    ("git branch --show-current", "tell me the current branch", "feature/search", "You are on the branch `feature/search`."),
    ("python --version", "check the Python version", "Python 3.11.7", "Python 3.11.7 is installed."),
    ("node --version", "check the Node version", "v20.11.0", "Node.js 20.11.0 is installed."),
    ("df -h /", "check the free disk space", "/dev/sda1  100G  62G  38G  62% /", "38 GB of 100 GB are free."),
    ("wc -l main.py", "count the lines of main.py", "48 main.py", "`main.py` has 48 lines."),
    ("uptime -p", "check how long the machine has been running", "up 3 days, 4 hours", "The machine has been running for 3 days and 4 hours."),
    ("whoami", "tell me which user I am", "alice", "You are logged in as `alice`."),
    ("pwd", "show the current folder", "/home/alice/garden", "You are in `/home/alice/garden`."),
    ("npm test", "run the JavaScript tests", "Tests: 1 failed, 20 passed, 21 total", "One of 21 tests failed; the other 20 passed."),
    ("cargo fmt --check", "check the formatting", "Diff in src/lib.rs at line 14", "`src/lib.rs` is not formatted: there is a difference at line 14."),
    ("nproc", "find out how many cores this machine has", "8", "This machine has 8 cores."),
]
TRANSLATIONS: list[tuple[str, dict[str, str]]] = [
    ("Good morning", {"German": "Guten Morgen", "French": "Bonjour", "Spanish": "Buenos días", "Italian": "Buongiorno"}),
    ("Thank you very much", {"German": "Vielen Dank", "French": "Merci beaucoup", "Spanish": "Muchas gracias", "Italian": "Molte grazie"}),
    ("Where is the train station?", {"German": "Wo ist der Bahnhof?", "French": "Où est la gare ?", "Spanish": "¿Dónde está la estación de tren?", "Italian": "Dov'è la stazione?"}),
    ("I am hungry", {"German": "Ich habe Hunger", "French": "J'ai faim", "Spanish": "Tengo hambre", "Italian": "Ho fame"}),
    ("See you tomorrow", {"German": "Bis morgen", "French": "À demain", "Spanish": "Hasta mañana", "Italian": "A domani"}),
    ("The book is on the table", {"German": "Das Buch liegt auf dem Tisch", "French": "Le livre est sur la table", "Spanish": "El libro está sobre la mesa", "Italian": "Il libro è sul tavolo"}),
    ("What is your name?", {"German": "Wie heißt du?", "French": "Comment t'appelles-tu ?", "Spanish": "¿Cómo te llamas?", "Italian": "Come ti chiami?"}),
    ("How much does it cost?", {"German": "Wie viel kostet das?", "French": "Combien ça coûte ?", "Spanish": "¿Cuánto cuesta?", "Italian": "Quanto costa?"}),
    ("Happy birthday", {"German": "Alles Gute zum Geburtstag", "French": "Joyeux anniversaire", "Spanish": "Feliz cumpleaños", "Italian": "Buon compleanno"}),
    ("I love you", {"German": "Ich liebe dich", "French": "Je t'aime", "Spanish": "Te quiero", "Italian": "Ti amo"}),
    ("The water is cold", {"German": "Das Wasser ist kalt", "French": "L'eau est froide", "Spanish": "El agua está fría", "Italian": "L'acqua è fredda"}),
    ("Goodbye", {"German": "Auf Wiedersehen", "French": "Au revoir", "Spanish": "Adiós", "Italian": "Arrivederci"}),
    ("cat", {"German": "Katze", "French": "chat", "Spanish": "gato", "Italian": "gatto"}), ("bread", {"German": "Brot", "French": "pain", "Spanish": "pan", "Italian": "pane"}),
    ("friend", {"German": "Freund", "French": "ami", "Spanish": "amigo", "Italian": "amico"}), ("house", {"German": "Haus", "French": "maison", "Spanish": "casa", "Italian": "casa"}),
]
SEARCHES: list[tuple[str, str, str, str]] = [  # query, title, snippet, answer
    ("best time to plant tomatoes", "Planting tomatoes", "Plant tomatoes outdoors after the last frost, usually in May.", "Tomatoes are best planted outdoors after the last frost, which is usually in May."),
    ("how to clean a coffee machine", "Descaling at home", "Run a mix of water and vinegar through the machine, then rinse twice with water.", "Run water with vinegar through the machine once, and then rinse it twice with clean water."),
    ("history of the bicycle", "A short history of the bicycle", "The first bicycle with pedals appeared in the 1860s in France.", "According to the search, the first bicycle with pedals appeared in France in the 1860s."),
    ("height of the Eiffel Tower", "Eiffel Tower", "The Eiffel Tower is 330 meters tall.", "The Eiffel Tower is 330 meters tall."),
    ("vegetarian lasagna recipe", "Spinach lasagna", "Layer pasta, spinach, ricotta and tomato sauce; bake for 40 minutes.", "A simple one is spinach lasagna: layer pasta, spinach, ricotta and tomato sauce, and bake it for 40 minutes."),
    ("Rust borrow checker", "Ownership explained", "The borrow checker makes sure that references never outlive the data they point to.", "The borrow checker makes sure that references never outlive the data they point to."),
    ("opening hours of the city museum", "City museum", "Open Tuesday to Sunday from 10 to 18.", "The city museum is open from Tuesday to Sunday, from 10 to 18 o'clock."),
    ("distance to the Moon", "The Moon", "The Moon is on average 384,400 kilometers from Earth.", "The Moon is about 384,400 kilometers away on average."),
    ("cheap flights to Lisbon", "Flights to Lisbon", "Flights start at 79 euros in March.", "Flights to Lisbon start at 79 euros in March."),
    ("symptoms of a cold", "Common cold", "Typical symptoms are a runny nose, a sore throat and coughing.", "Typical symptoms of a cold are a runny nose, a sore throat and coughing. If it gets worse, please see a doctor."),
    ("Python sort a dictionary by value", "Sorting dictionaries", "Use sorted(d.items(), key=lambda item: item[1]).", "Use `sorted(d.items(), key=lambda item: item[1])`; it returns the pairs ordered by value."),
    ("how long to boil an egg", "Boiled eggs", "Six minutes for a soft yolk, ten minutes for a hard one.", "Boil it for six minutes for a soft yolk or ten minutes for a hard one."),
    ("rules of chess castling", "Castling", "The king moves two squares toward a rook that has not moved yet.", "When castling, the king moves two squares toward a rook, and neither piece may have moved before."),
    ("new library in town", "Library news", "The new library opens on 1 September.", "The new library opens on 1 September."),
]
MESSAGES = _items("""
I will be ten minutes late; the meeting is moved to Friday; lunch is at noon; the report is ready; please bring the tickets; the package has arrived; thank you for your help; I finished the
draft; the door code has changed; see you at the station; dinner is at seven; the tests pass now; I found your keys; the plan looks good to me""")
EVENTS = _items("team meeting; dentist appointment; lunch with Clara; piano lesson; yoga class; project review; call with the bank; book club; dinner with friends; haircut; job interview; doctor's appointment")
PRODUCTS = _items("a blue backpack; a coffee grinder; a desk lamp; a pair of running shoes; a rain jacket; a chess set; a water bottle; a keyboard; a bicycle helmet; a cookbook; a garden chair; a wool scarf")
TASKS = _items("water the plants; call Grandma; buy stamps; pay the rent; take out the trash; send the invoice; charge the bike; book the hotel; feed the cat; clean the kitchen; renew the passport; print the tickets")
SONGS = _items("some jazz; classical music; rain sounds; happy songs; piano music; rock music; a bedtime story; dance music")
MOVIES = _items("The Quiet River; Summer of Trains; A Map of Snow; The Last Lighthouse; Paper Boats; Midnight Bakery")
INGREDIENTS = _items("rice and eggs; potatoes; tomatoes and pasta; chickpeas; apples; spinach and cheese; carrots; mushrooms")
TABLES: list[tuple[str, str, str]] = [  # question, SQL, column
    ("How many customers do we have?", "SELECT COUNT(*) FROM customers", "customers"), ("How many orders are open?", "SELECT COUNT(*) FROM orders WHERE status = 'open'", "open orders"),
    ("How many products are out of stock?", "SELECT COUNT(*) FROM products WHERE stock = 0", "products out of stock"),
    ("How many users signed up this year?", "SELECT COUNT(*) FROM users WHERE signup_year = 2025", "users who signed up this year"),
    ("How many books are in the database?", "SELECT COUNT(*) FROM books", "books"), ("How many invoices are unpaid?", "SELECT COUNT(*) FROM invoices WHERE paid = 0", "unpaid invoices"),
    ("How many employees work in sales?", "SELECT COUNT(*) FROM employees WHERE department = 'sales'", "employees in sales"),
]
