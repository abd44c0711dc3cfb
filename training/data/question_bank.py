"""Questions of general knowledge and small puzzles."""

from __future__ import annotations

from topic_bank import _items

_COUNTRIES: list[str] = _items("""
France; Spain; Italy; Germany; Portugal; Greece; Norway; Sweden; Finland; Denmark; Poland; Austria; Switzerland; Hungary; Ireland; Iceland; Russia; Turkey; Egypt; Kenya; Nigeria;
Morocco; South Africa; Ethiopia; India; China; Japan; South Korea; Thailand; Vietnam; Indonesia; the Philippines; Australia; New Zealand; Canada; Mexico; Cuba; Brazil; Argentina; Chile;
Peru; Colombia; Iran; Iraq; Israel; Saudi Arabia; Pakistan; Nepal; Mongolia; Ukraine""")
_COUNTRY_QUESTIONS = ["What is the capital of {}?", "Which language do people speak in {}?", "On which continent is {}?", "What is {} known for?", "What food is typical of {}?",
                      "What is the currency of {}?", "What does the flag of {} look like?", "Which countries border {}?"]
_ANIMALS: list[str] = _items("""
cats; dogs; horses; cows; elephants; lions; tigers; bears; wolves; foxes; owls; eagles; penguins; dolphins; whales; sharks; octopuses; frogs; snakes; turtles; bees; ants; spiders; butterflies;
giraffes; kangaroos; koalas; pandas; monkeys; bats; rabbits; squirrels; camels; crocodiles; chickens; ducks; swans; parrots; salmon; snails""")
_ANIMAL_QUESTIONS = ["What do {} eat?", "Where do {} live?", "How long do {} live?", "How do {} sleep?", "Are {} dangerous?", "How do {} communicate?", "What are baby {} called?", "How fast are {}?"]
_GENERAL: list[str] = _items("""
How many continents are there?; What is the largest ocean?; What is the longest river in the world?; What is the highest mountain?; Which planet is closest to the Sun?; Which planet is the
largest?; How many planets are in the solar system?; How far away is the Moon?; What is the Sun made of?; Why is the sky blue?; Why is the sea salty?; Why do leaves fall in autumn?; What is water made
of?; What is air made of?; At what temperature does water boil?; At what temperature does water freeze?; What is the chemical symbol for gold?; What is the chemical symbol for iron?; How many bones
does an adult human have?; How many teeth does an adult have?; What does the heart do?; What do the lungs do?; What is the largest organ of the human body?; How many legs does a spider have?; How many
legs does an insect have?; What is the fastest land animal?; What is the largest animal?; What is the tallest animal?; Which bird cannot fly?; Who wrote Romeo and Juliet?; Who painted the Mona Lisa?; Who was
the first person on the Moon?; When did the first person walk on the Moon?; When did World War II end?; When did World War I begin?; Who invented the telephone?; Who invented the light bulb?; Who developed the
theory of relativity?; Who discovered penicillin?; Who was Cleopatra?; Who was Napoleon?; Who was Mozart?; Who was Marie Curie?; Who was Isaac Newton?; Who was Charles Darwin?; Who was Galileo?; Who was Ada
Lovelace?; Who was Alan Turing?; Who was Nelson Mandela?; Who was Mahatma Gandhi?; Who was Abraham Lincoln?; Who was Leonardo da Vinci?; Who was Aristotle?; Who was Julius Caesar?; Who built the pyramids?; What is
the Great Wall of China?; What is the Eiffel Tower?; What is the Statue of Liberty?; Where is Machu Picchu?; Where is the Taj Mahal?; Where is the Sahara?; Where is the Amazon rainforest?; Where is Mount Everest?; How
many days are in a year?; How many days are in February?; How many hours are in a day?; How many minutes are in an hour?; How many seconds are in an hour?; How many weeks are in a year?; How many letters are in
the English alphabet?; What are the primary colors?; What color do you get when you mix blue and yellow?; What color do you get when you mix red and white?; How many strings does a violin have?; How many
keys does a piano have?; How many players are on a soccer team?; How long is a marathon?; How often are the Olympic Games held?; How many sides does a hexagon have?; How many degrees are in a circle?; What is
half of a hundred?; What is the square root of 81?; What is a prime number?; What is pi?; What does CPU stand for?; What does HTML stand for?; What does RAM do?; What is a byte?; What is the difference between weather and
climate?; What is the difference between a lake and a sea?; What is a leap year?; Why do we have leap years?; What causes tides?; What causes earthquakes?; What is lava?; How are rainbows formed?; What is a solar eclipse?; How
do airplanes fly?; How do magnets work?; How does a microwave oven work?; How does a refrigerator work?; How does soap work?; How do plants make food?; What do vitamins do?; Why do we sleep?; Why do we dream?; Why do onions
make us cry?; Why does bread rise?; What is the main ingredient of bread?; What is cheese made from?; Where does chocolate come from?; What is tofu?; What is sushi?; What is paella?; What is a democracy?; What does a
mayor do?; What is a constitution?; What is inflation?; What is the European Union?; What is the United Nations?; What is an atom?; What is a molecule?; What is a cell?; What is a virus?; What is an antibiotic?; What is a
metaphor?; What is a haiku?; What is a verb?; What is an adjective?; What is the past tense of go?; What is the plural of mouse?; What is the opposite of hot?; What is a synonym for happy?; What is a palindrome?; What is
an open source license?; What is a programming language?; What is a compiler?; What is a bug in a program?; What is the cloud in computing?; What is Wi-Fi?; What is a search engine?; What is a chatbot?; Who was the
first president of the United States?; What is the smallest country in the world?; What is the largest country in the world?; Which country has the most people?; What is the largest desert?; What is the deepest ocean
trench?; What is the coldest continent?; Which metal is liquid at room temperature?; Which gas do plants take in?; Which gas do we breathe out?; What is the hardest natural material?; How fast is light?; How fast is
sound?; What is the center of an atom called?; What is the powerhouse of the cell?; How many chambers does the heart have?; What is the name of our galaxy?; What is a light year?; What is a black hole?; Which planet has
rings?; Why is Mars red?; How long does the Earth take to go around the Sun?; How long does the Moon take to go around the Earth?; What is the Milky Way?; What is Halley's Comet?""")

QUESTIONS: list[str] = (
    _GENERAL
    + [question.format(country) for country in _COUNTRIES for question in _COUNTRY_QUESTIONS]
    + [question.format(animals) for animals in _ANIMALS for question in _ANIMAL_QUESTIONS]
)

PUZZLES: list[str] = _items("""
{a} is taller than {b}. {b} is taller than {c}. Who is the shortest?; {a} is older than {b}, and {c} is younger than {b}. Who is the oldest?; All roses are flowers. Some flowers fade quickly. Do all roses fade
quickly?; {a} has {n} apples and gives half of them to {b}. How many apples does {a} have now?; A farmer has {m} sheep. All but {k} run away. How many are left?; If today is Monday, what day is it in {k} days?; A box
holds {k} red balls and {m} blue balls. Which color is more likely when you take one ball?; {a} finishes before {b} but after {c}. Who finishes first?; It is raining, and {a} has no umbrella. What will probably happen
when {a} goes outside?; What comes next: {k}, {k2}, {k3}, ...?; {a} can paint a wall in {n} hours. How long would two people take who work at the same speed?; Which is heavier: a kilogram of iron or a kilogram of
feathers?; If it takes {k} machines {k} minutes to make {k} parts, how long do {m} machines need for {m} parts?; {a} has {k} sisters and {m} brothers. How many children are in the family?; A clock shows three o'clock. What angle
is between the hands?; I have keys but open no doors. What am I?; You are in a dark room with a candle, a lamp and a stove, and only one match. What do you light first?; {a} parks in a row of cars. There are {k} cars to
the left and {m} to the right. How many cars are in the row?; Put these in order from small to large: a house, a mouse, a horse.; {a} left home at {k} o'clock and came back {m} hours later. What time is it?""")

WORD_PROBLEMS: list[str] = _items("""
{a} has {n} apples and buys {m} more. How many apples does {a} have?; {a} has {big} marbles and gives {small} to {b}. How many are left?; A book costs {n} dollars. How much do {m} books cost?; {big} cookies are shared equally among {k}
children. How many does each child get, and how many are left?; A train travels {s} kilometers per hour. How far does it go in {k} hours?; {a} reads {n} pages a day. How many pages are that in {m} days?; A shirt costs {p} dollars and is
{q} percent off. What is the new price?; {a} saves {n} dollars a week. How long does it take to save {total} dollars?; There are {n} rows with {m} chairs each. How many chairs are there?; {a} is {n} years old. {b} is {m} years older. How old is
{b}?; A rectangle is {n} meters long and {m} meters wide. What is its area?; A square has sides of {n} centimeters. What is its perimeter?; A recipe for {k} people needs {n} eggs. How many eggs are needed for twice as many people?; {a} starts
at {k} o'clock and works for {m} hours. When is {a} finished?; In a class of {big} students, {small} are absent. How many are present?; A bus has {big} seats, and {small} are taken. How many are free?; {a} walks {n} kilometers every day. How far is
that in a week?; What is {n} plus {m}?; What is {big} minus {small}?; What is {n} times {m}?; What is {q} percent of {p}?; What is half of {p}?; Add {n}, {m} and {k}.; What is {total} divided by {n}?""")
