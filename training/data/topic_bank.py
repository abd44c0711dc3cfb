"""Topics for prompts, by the role they can play in a sentence.

CONCEPTS can be explained ("Explain photosynthesis."), ACTIVITIES are verb phrases ("How do I bake bread?"), SUBJECTS
can be written about ("a poem about the sea"), GROUPS hold things of one class that can be compared, SITUATIONS are
first-person sentences that ask for advice, OCCASIONS are reasons to write a message.
"""

from __future__ import annotations


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", " ").split(";") if item.strip()]


CONCEPTS: dict[str, list[str]] = {
    "biology": _items("""
photosynthesis; evolution; natural selection; DNA; genes; the immune system; the human heart; digestion; the nervous system; cells; bacteria;
viruses; vaccines; the water cycle of plants; pollination; migration of birds; hibernation; camouflage; food chains; ecosystems; biodiversity;
symbiosis; metamorphosis; how muscles work; how bones heal; blood types; the five senses; how the eye works; how the ear works; sleep; dreams;
memory; why we yawn; how plants drink water; why leaves change color; seed germination; fungi; coral reefs; mammals; reptiles; amphibians;
insects; how bees make honey; how spiders spin webs; animal communication; endangered species; extinction; fossils; dinosaurs; instinct;
respiration; the lungs; the skin; hormones; vitamins; proteins; enzymes; stem cells; inheritance; mutations; warm-blooded animals; the brain"""),
    "physics": _items("""
gravity; magnetism; electricity; static electricity; friction; inertia; momentum; energy; kinetic energy; potential energy; heat; temperature;
pressure; sound waves; light; the speed of light; reflection; refraction; rainbows; color; lenses; mirrors; atoms; electrons; radioactivity;
nuclear energy; relativity; quantum mechanics; density; buoyancy; why ships float; how airplanes fly; simple machines; levers; pulleys; gears;
circuits; conductors and insulators; batteries; solar panels; wind power; the laws of motion; pendulums; waves; echoes; vacuum; black holes;
entropy; thermodynamics; resonance; surface tension; lasers; how magnets work; why the sky is blue; how a compass works; how a thermometer works"""),
    "chemistry": _items("""
the periodic table; chemical reactions; acids and bases; the pH scale; oxidation; rust; combustion; crystals; metals; alloys; plastics; polymers;
molecules; chemical bonds; solutions; catalysts; evaporation; condensation; boiling; freezing; melting; distillation; carbon; oxygen; hydrogen;
nitrogen; helium; gold; iron; salt; soap; fermentation; why bread rises; why ice floats; states of matter; gases; liquids; solids; fire"""),
    "earth": _items("""
volcanoes; earthquakes; plate tectonics; the water cycle; clouds; rain; snow; thunderstorms; lightning; tornadoes; hurricanes; the seasons; tides;
ocean currents; climate; weather; climate change; the greenhouse effect; the ozone layer; glaciers; deserts; rainforests; mountains; rivers;
caves; islands; soil; rocks; minerals; erosion; the layers of the Earth; the atmosphere; fog; wind; the northern lights; droughts; floods; tsunamis;
groundwater; wetlands; the equator; latitude and longitude; time zones; continents; maps; recycling; renewable energy; pollution; deforestation"""),
    "space": _items("""
the Sun; the Moon; the solar system; planets; stars; galaxies; the Milky Way; comets; asteroids; meteors; eclipses; the phases of the Moon; Mars;
Jupiter; Saturn and its rings; Venus; Mercury; Neptune; Uranus; Pluto; the Big Bang; telescopes; satellites; rockets; space stations; astronauts;
orbits; the light year; supernovas; constellations; the moon landing; gravity in space; how stars form; why we have day and night; why we have years"""),
    "mathematics": _items("""
fractions; decimals; percentages; prime numbers; negative numbers; square roots; exponents; algebra; equations; geometry; triangles; circles; pi;
the Pythagorean theorem; angles; area; perimeter; volume; averages; the median; probability; statistics; graphs; coordinates; ratios; infinity;
zero; sets; functions; logarithms; derivatives; integrals; sequences; the Fibonacci sequence; symmetry; binary numbers; Roman numerals; units of
measurement; estimation; logic; proofs; factorials; permutations; matrices; vectors; scientific notation; prime factorization; rounding"""),
    "history": _items("""
ancient Egypt; the pyramids; ancient Greece; the Roman Empire; the fall of Rome; the Silk Road; the Middle Ages; knights; castles; Vikings; the
Renaissance; the printing press; the Black Death; the Age of Exploration; the Industrial Revolution; the French Revolution; the American Revolution;
the American Civil War; World War I; World War II; the Cold War; the Berlin Wall; the civil rights movement; the Great Depression; the space race;
the Ottoman Empire; the Mongol Empire; the Inca Empire; the Aztecs; the Maya; ancient China; the Great Wall of China; samurai; feudalism; the
Stone Age; the Bronze Age; the Iron Age; the invention of writing; the invention of the wheel; the history of money; the history of bread; the
history of the bicycle; the history of the telephone; the history of flight; the history of medicine; the Olympic Games of ancient Greece; the
Magna Carta; colonialism; the abolition of slavery; women's right to vote; the United Nations; the history of tea; the history of coffee; the
history of chess; the history of photography; the history of cinema; the Wright brothers; the Titanic; Pompeii; the Rosetta Stone; Stonehenge"""),
    "technology": _items("""
computers; the internet; the World Wide Web; email; search engines; smartphones; GPS; Wi-Fi; Bluetooth; batteries in phones; touch screens; cameras;
printers; 3D printing; robots; artificial intelligence; machine learning; neural networks; language models; tokenization in language models;
algorithms; data structures; arrays; linked lists; hash tables; stacks and queues; binary search; sorting algorithms; recursion; big O notation;
databases; SQL; APIs; HTTP; HTML; CSS; JavaScript; Python; Rust; compilers; interpreters; operating systems; memory in a computer; caches; CPUs;
GPUs; threads; processes; version control; Git; open source software; encryption; passwords; two-factor authentication; firewalls; computer
viruses; phishing; cloud computing; servers; IP addresses; DNS; bits and bytes; pixels; file compression; backups; bugs in software; unit tests;
debugging; object-oriented programming; functional programming; variables; loops; functions in programming; conditionals; strings in programming;
regular expressions; JSON; XML; the command line; containers; virtual machines; electric cars; self-driving cars; barcodes; QR codes; microwaves;
refrigerators; washing machines; elevators; escalators; engines; bridges; skyscrapers; bicycles; clocks; radar; sonar; X-rays; hybrid cars; drones;
garbage collection; pointers; type systems; immutability; concurrency; deadlocks; event loops; exceptions; dependency injection; code review;
continuous integration; semantic versioning; load balancing; caching on the web; cookies on websites; floating-point numbers; Unicode; hashing"""),
    "society": _items("""
democracy; elections; laws; the constitution; courts; taxes; inflation; supply and demand; banks; interest rates; credit cards; budgets; insurance;
the stock market; trade; unemployment; human rights; freedom of speech; citizenship; public transport; schools; universities; libraries; museums;
newspapers; advertising; marketing; volunteering; charity; cities; villages; housing; healthcare; public parks; teamwork; leadership; negotiation;
conflict resolution; feedback at work; time management; remote work; small businesses; startups; customer service; supply chains; agriculture;
fair trade; globalization; languages; dialects; sign language; culture; traditions; holidays; weddings; etiquette; good manners; body language"""),
    "arts": _items("""
painting; impressionism; cubism; sculpture; photography; architecture; music theory; rhythm; harmony; melody; jazz; blues; classical music; opera;
rock music; hip hop; folk music; the piano; the violin; the guitar; drums; dance; ballet; theater; film editing; animation; comics; poetry; haiku;
sonnets; metaphors; similes; rhyme; novels; short stories; fairy tales; myths; fables; science fiction; fantasy; mystery stories; biographies;
storytelling; plot; characters in a story; point of view in writing; dialogue in fiction; calligraphy; pottery; origami; fashion; color theory;
perspective in drawing; stained glass; mosaics; street art; museums of art; the Mona Lisa; Shakespeare's plays; Greek mythology; Norse mythology"""),
    "everyday": _items("""
breakfast; coffee; tea; chocolate; bread; cheese; spices; olive oil; honey; vegetarian food; street food; a balanced diet; hydration; exercise;
stretching; yoga; meditation; mindfulness; good posture; first aid; sunscreen; brushing your teeth; laundry; houseplants; composting; gardening;
pets; friendship; family; neighbors; kindness; patience; honesty; courage; gratitude; curiosity; creativity; happiness; sadness; anger; fear;
jealousy; loneliness; boredom; stress; anxiety before a test; confidence; motivation; habits; procrastination; failure; success; forgiveness; trust;
empathy; humor; nostalgia; hope; home; work-life balance; saving money; shopping lists; moving house; road trips; camping; hiking; weekends"""),
    "sport": _items("""
soccer; basketball; tennis; baseball; cricket; rugby; volleyball; golf; swimming; running; marathons; cycling; skiing; snowboarding; ice skating;
hockey; gymnastics; boxing; judo; karate; fencing; archery; rowing; sailing; surfing; climbing; chess as a sport; table tennis; badminton; handball;
the Olympics; the World Cup; the offside rule; teamwork in sport; warming up before exercise; sportsmanship; training plans; the triathlon"""),
}

ACTIVITIES: list[str] = _items("""
bake bread; make pancakes; boil an egg; cook rice; make a tomato sauce; bake a chocolate cake; make a fruit salad; roast vegetables; grill chicken;
make vegetable soup; brew good coffee; make iced tea; make a sandwich; store fresh herbs; freeze leftovers; sharpen a knife; peel garlic quickly; make
pizza dough; cook pasta; make a smoothie; pack a lunch box; plan meals for a week; bake cookies; make yogurt; make jam; plant tomatoes; grow herbs indoors;
water houseplants; repot a plant; start a compost heap; mow the lawn; prune roses; attract birds to a garden; grow potatoes; plant a tree; save seeds;
clean a window; remove a coffee stain; wash wool; fold a shirt; iron a shirt; sew on a button; clean an oven; unclog a sink; fix a dripping tap; hang a
picture; paint a room; change a light bulb; organize a closet; make a bed; vacuum a carpet; get rid of ants; save electricity at home; save water; reduce
plastic waste; recycle paper; write a letter; write a thank-you note; write a resume; write a cover letter; prepare for a job interview; ask for a raise;
write a short story; write a poem; start a diary; read more books; learn new words; learn a language; remember names; study for an exam; take good notes;
give a presentation; overcome stage fright; write an essay; write a summary; do a science project; solve a Rubik's cube; memorize a poem; improve my
handwriting; learn to type fast; stay focused; stop procrastinating; wake up early; fall asleep faster; build a habit; manage my time; set goals; plan a week;
make a to-do list; stay calm under pressure; meditate; breathe deeply; start running; stretch in the morning; do a push-up; learn to swim; ride a bicycle; fix
a flat bicycle tire; oil a bicycle chain; throw a frisbee; juggle three balls; skip stones; play chess; play the guitar; read music; sing in tune; draw a
face; draw a cat; paint with watercolors; take better photos; take a photo of the moon; make a paper airplane; fold a paper crane; build a birdhouse; build a
campfire safely; set up a tent; pack a backpack; read a map; use a compass; plan a trip; pack a suitcase; travel on a budget; find a cheap flight; avoid jet
lag; choose a hotel; make friends in a new city; start a conversation; make small talk; say no politely; apologize to a friend; give a compliment; listen
better; resolve an argument; support a sad friend; plan a birthday party; choose a gift; wrap a present; write a wedding speech; introduce two friends; host a
dinner; set a table; teach a child to read; tell a bedtime story; explain death to a child; calm a crying baby; entertain children on a rainy day; train a
puppy; brush a cat; walk a dog safely; set up an aquarium; feed wild birds; care for a rabbit; choose a pet; make a budget; save for a holiday; open a bank
account; compare prices; read a contract; pay off debt; sell old books; start a small business; name a company; find customers; write an advertisement; run
a meeting; write meeting notes; give feedback; delegate work; manage a small team; work from home; set up a desk; reduce eye strain; back up my photos; choose
a strong password; spot a phishing email; clean a keyboard; speed up an old computer; install Python; create a virtual environment; write a Python script; sort
a list in Python; read a file in Python; reverse a string; use Git; undo a commit in Git; write a commit message; resolve a merge conflict; debug a program; write a unit test; design a
database table; write a SQL query; build a web page; center a div; make a website faster; use the command line; find a file on Linux; rename many files; write
a shell script; schedule a task with cron; connect to a server with SSH; learn Rust; learn JavaScript; name variables well; read other people's code; review
code; document a project; choose a license for a project; contribute to open source; choose a laptop; set up Wi-Fi; make a podcast; edit a video; give first
aid for a burn; treat a small cut; remove a splinter; stop a nosebleed; protect my skin from the sun; drink more water; eat more vegetables; cook for one
person; cook for a crowd; choose a ripe avocado; cut an onion without tears; keep bread fresh; make a salad dressing; make popcorn; make hot chocolate;
make lemonade; carve a pumpkin; dye eggs; build a snowman; watch the stars; find the North Star; identify a tree; press flowers; make a kite; fly a kite; make
a candle; make soap; knit a scarf; crochet a hat; make a bracelet; restore an old chair; sand wood; build a bookshelf; use a drill; measure a room; choose
paint colors; decorate a small room; make a room cozy; move to a new apartment; meet the neighbors; organize a book club; start a choir; volunteer; run a
bake sale; clean up a park; ride a horse; row a boat; tie a knot; tie a tie; tie shoelaces; polish shoes; choose running shoes; choose glasses; cut paper
snowflakes; play hide and seek; learn a card trick; write a joke; tell a joke; write a song; learn the alphabet in sign language; count in Spanish; say hello in ten
languages; convert miles to kilometers; calculate a tip; compute a percentage; find the area of a circle; add fractions; multiply large numbers in my head""")

SUBJECTS: dict[str, list[str]] = {
    "animals": _items("""
a fox; an owl; a brave mouse; an old dog; a lost kitten; a lonely whale; a clever crow; a shy turtle; a lazy bear; a dancing bee; a singing frog; a wolf in
the snow; a proud peacock; a tiny ant; a wise elephant; a curious penguin; a sleepy cat; a wild horse; a goat on a mountain; a butterfly; a spider; a
hedgehog; a family of ducks; a parrot that tells secrets; a rabbit with a map; a dragon who is afraid of fire; a squirrel; a seal; a lion without a roar; a
dolphin; an octopus; a snail in a hurry; a donkey; a rooster; a sheep who could count; a bat; a firefly; a swan; a salmon; a beaver; a camel; a giraffe"""),
    "nature": _items("""
the sea; the moon; the first snow; autumn leaves; a summer storm; the morning sun; a quiet forest; a river; a mountain; the desert at night; a garden;
spring rain; the wind; a waterfall; an old oak tree; a wildflower; the stars; a rainbow; a frozen lake; fog in a valley; a volcano; a tiny island; a
cloud; a seed; sunset on the beach; the north wind; a cave; a meadow; a thunderstorm; an apple tree; the last leaf on a tree; the night sky; a tide pool"""),
    "people": _items("""
a baker; a lighthouse keeper; a young inventor; a tired teacher; a kind stranger; two sisters; a grandfather and his watch; a girl who paints; a boy who cannot
sleep; a clockmaker; a sailor; an astronaut; a gardener; a shy musician; a librarian; a nurse on a night shift; a taxi driver; a chess champion; a
magician; a new student; a retired pilot; a detective who loves tea; a fisherman; a shoemaker; a postman; a king without a crown; a queen and a beggar;
twins; a carpenter; a knight who is afraid of horses; a scientist; a programmer and a bug; a farmer; a street musician; a tailor; a cook; a goalkeeper"""),
    "places": _items("""
a small village; a train station; a lighthouse; an abandoned house; a busy market; a library at night; a bakery at dawn; a school on the last day; a bridge; a
hidden garden; a castle; a space station; the bottom of the ocean; a city without clocks; an island of birds; a toy shop; a museum after closing; an attic; a
bookshop; a hospital; a circus; an old theater; a playground; a farm in winter; a kitchen; a treehouse; an airport; a bus stop in the rain; the moon base"""),
    "things": _items("""
a red umbrella; a lost key; an old letter; a broken clock; a magic pencil; a paper boat; a music box; a robot; a silver coin; a map; a wooden chair; a pair of
shoes; a lamp; a kite; a mirror; a violin; a bicycle; a teapot; a photograph; a secret door; a time machine; a message in a bottle; a snow globe; a blue
button; a candle; a suitcase; a forgotten book; a compass; a swing; a hat; a telescope; a bell; a train; a sandwich; a cup of coffee; a computer; a password"""),
    "feelings": _items("""
friendship; courage; hope; being brave; being kind; missing someone; coming home; growing up; saying sorry; waiting; a first day; a new beginning; a promise; a
secret; losing and winning; sharing; trust; dreams; loneliness; joy; gratitude; forgiveness; patience; curiosity; peace; love; time; silence; luck; change;
a mistake; a second chance; a surprise; a goodbye; homesickness; pride; doubt; childhood; memory; freedom; wonder; laughter"""),
}

GROUPS: dict[str, list[str]] = {
    "pets": _items("cats; dogs; rabbits; hamsters; goldfish; parrots; turtles"),
    "drinks": _items("coffee; tea; hot chocolate; orange juice; lemonade; milk"),
    "food": _items("rice; pasta; potatoes; bread; noodles; couscous"),
    "fruit": _items("apples; oranges; bananas; grapes; strawberries; mangoes; pears"),
    "transport": _items("trains; buses; cars; bicycles; planes; ferries; trams; motorcycles"),
    "seasons": _items("spring; summer; autumn; winter"),
    "sports": _items("soccer; tennis; basketball; swimming; running; cycling; golf; volleyball; yoga"),
    "instruments": _items("the piano; the guitar; the violin; the flute; the drums; the cello; the trumpet"),
    "languages to program in": _items("Python; JavaScript; Rust; C; Java; Go; TypeScript; C++; Ruby"),
    "data structures": _items("arrays; linked lists; hash maps; binary trees; stacks; queues; sets; heaps"),
    "databases": _items("SQLite; PostgreSQL; MySQL; a spreadsheet; a text file; Redis"),
    "protocols": _items("HTTP; FTP; SSH; TCP; UDP; WebSockets"),
    "animals": _items("lions; tigers; wolves; bears; elephants; whales; dolphins; sharks; eagles; owls; crocodiles; frogs"),
    "planets": _items("Earth; Mars; Venus; Jupiter; Saturn; Mercury; Neptune"),
    "materials": _items("wood; steel; plastic; glass; concrete; aluminum; paper; stone"),
    "reading": _items("books; e-books; audiobooks; newspapers; magazines; comics"),
    "places to live": _items("a city; a village; a suburb; a farm; an island; the mountains"),
    "ways to work": _items("working from home; working in an office; working in a shop; working outdoors; working at night"),
    "energy": _items("solar power; wind power; coal; nuclear power; hydropower; natural gas"),
    "messages": _items("email; phone calls; text messages; letters; video calls"),
    "payment": _items("cash; credit cards; bank transfers; mobile payments"),
    "holidays": _items("a beach holiday; a city trip; a camping trip; a ski trip; a road trip; staying at home"),
    "arts": _items("painting; photography; sculpture; film; theater; dance; music"),
    "school subjects": _items("mathematics; history; biology; chemistry; physics; geography; music; art"),
    "biomes": _items("deserts; rainforests; grasslands; oceans; tundra; wetlands; mountains"),
    "body": _items("the heart; the lungs; the brain; the liver; the stomach; the skin"),
    "writing": _items("poems; novels; short stories; essays; letters; plays"),
    "exercise": _items("walking; running; swimming; weight training; yoga; dancing; climbing"),
    "computers": _items("laptops; desktop computers; tablets; smartphones; servers"),
    "code": _items("a list and a tuple in Python; a class and a function; a process and a thread; an array and a linked list; a compiler and an interpreter"),
}

SITUATIONS: list[str] = _items("""
I had a fight with my best friend; I feel nervous about my exam tomorrow; I can't sleep at night; I forgot my mother's birthday; I don't like my new job; my
neighbor plays loud music; my roommate never cleans the kitchen; I feel lonely in my new city; I want to change careers; I have too much work; my boss never
says thank you; I made a mistake at work; I am afraid of public speaking; I want to get fit but I hate the gym; I spend too much money; I want to learn to
cook; my child does not want to do homework; my cat wakes me up at five; my dog barks at everyone; I lost my wallet; I broke a friend's vase; I am always
late; I get distracted by my phone; I want to read more; I feel bored on weekends; I don't know what to study; I failed a test; I was not invited to a party;
I have a job interview next week; I have to give a speech at a wedding; my friend is moving away; my grandmother is in hospital; I want to adopt a dog; I
can't decide between two jobs; I feel tired all day; I drink too much coffee; I want to eat healthier; I have a headache; my back hurts from sitting; I am
shy; I want to make new friends; my team does not listen to me; my colleague takes credit for my work; I have been working on a bug for two days; my code works
but I don't know why; I want to learn programming; I don't understand recursion; my computer is slow; I forgot my password; my plants keep dying; my bread
never rises; I burned the rice; guests arrive in one hour and I have nothing to eat; I have only eggs, rice and tomatoes; I want to save for a house; I lent
money to a friend who does not pay it back; I want to travel alone for the first time; I am afraid of flying; I missed my train; it rains on my day off; I
have nothing to wear for a wedding; I want to write a book but I cannot start; I want to learn the guitar at forty; I feel that I am not good enough; I compare
myself with others; I want to say sorry but I don't know how; I don't know how to say no; I get angry too fast; I cry easily; I am proud of my sister; I just
got a new job; I passed my exam; I finished my first marathon; I am getting married; I am going to be a father; we won the match; my best friend forgot me;
I moved to another country; I don't speak the language well; I miss home; I want to quit sugar; I want to wake up earlier; I forget what I read; I have too many
hobbies; I have no hobbies; I want to surprise my partner; my partner and I disagree about money; my parents don't like my choice; my teenager does not talk to me;
my friend talks only about herself; I want a quieter life; I am retiring next month; I want to help in my neighborhood; I have a free afternoon; I have ten
dollars for dinner; I need a gift for my father; I need a gift for a child of six; I have to choose a laptop; I want to start a garden on a balcony; my room is
too small; my house is cold; the internet at home is slow; I have to cancel plans; I have to share bad news; I have to move in two weeks""")

OCCASIONS: list[str] = _items("""
a thank-you for a birthday gift; an invitation to a dinner; an invitation to a housewarming party; a request for a day off; a sick note to my boss; an apology for
being late; an apology for a missed meeting; a question about an invoice; a complaint about a broken toaster; a complaint about a noisy hotel room; a request for
a refund; a reminder about a meeting; a summary of a meeting; a welcome to a new colleague; a goodbye to colleagues; congratulations on a new baby;
congratulations on a promotion; congratulations on a wedding; get-well wishes; condolences; a request for a reference; a job application; a follow-up after an
interview; a resignation; a question to a teacher; an excuse for late homework; a letter to a pen pal; a letter to a future self; a letter to a grandmother; a
postcard from the sea; a postcard from the mountains; a love letter; a letter to the editor about a new park; a request for a library card; an order of books; a
change of a delivery address; a question about opening hours; a booking of a table for four; a booking of a hotel room; a cancellation of a booking; a request for
a quote from a painter; a note to the neighbors about a party; a note to the landlord about a leaking roof; an announcement of a bake sale; an announcement of a new
product; a notice that the office is closed on Friday; a request for help with a project; an offer to help; a proposal for a team lunch; a status report; a bug report;
a release announcement; a question on a mailing list; a request for a code review; a thank-you to a volunteer; a request for donations; a lost cat notice; a found
wallet notice; an introduction to a book club; a welcome to a new neighbor; a birthday wish for a friend; a birthday wish for a colleague; New Year's wishes; an
apology to a customer; an answer to an angry customer; a polite refusal of an invitation; an acceptance of a job offer; a request to reschedule a call""")
