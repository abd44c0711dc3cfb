"""Facts that are certain, as tables; `synthetic_facts.py` asks about them."""

from __future__ import annotations


def _pairs(text: str) -> dict[str, str]:
    entries = [entry.strip() for entry in text.replace("\n", " ").split(";") if entry.strip()]
    return {key.strip(): value.strip() for key, value in (entry.split(":", 1) for entry in entries)}


# Country: capital. Countries with a disputed or divided seat of government are left out.
CAPITALS = _pairs("""
France: Paris; Spain: Madrid; Italy: Rome; Germany: Berlin; Portugal: Lisbon; Greece: Athens; Norway: Oslo; Sweden: Stockholm; Finland: Helsinki; Denmark: Copenhagen; Poland: Warsaw; Austria: Vienna;
Hungary: Budapest; Ireland: Dublin; Iceland: Reykjavik; Russia: Moscow; Turkey: Ankara; Ukraine: Kyiv; Romania: Bucharest; Bulgaria: Sofia; Serbia: Belgrade; Croatia: Zagreb; Slovenia: Ljubljana;
Slovakia: Bratislava; the Czech Republic: Prague; Belgium: Brussels; the Netherlands: Amsterdam; Luxembourg: Luxembourg City; Estonia: Tallinn; Latvia: Riga; Lithuania: Vilnius; Belarus: Minsk; Moldova: Chisinau;
Albania: Tirana; North Macedonia: Skopje; Montenegro: Podgorica; Bosnia and Herzegovina: Sarajevo; Malta: Valletta; Cyprus: Nicosia; the United Kingdom: London; Monaco: Monaco; Andorra: Andorra la Vella; Liechtenstein: Vaduz;
Egypt: Cairo; Kenya: Nairobi; Nigeria: Abuja; Morocco: Rabat; Ethiopia: Addis Ababa; Ghana: Accra; Algeria: Algiers; Tunisia: Tunis; Libya: Tripoli; Sudan: Khartoum; Uganda: Kampala; Rwanda: Kigali; Tanzania: Dodoma;
Zambia: Lusaka; Zimbabwe: Harare; Botswana: Gaborone; Namibia: Windhoek; Angola: Luanda; Mozambique: Maputo; Madagascar: Antananarivo; Senegal: Dakar; Mali: Bamako; Niger: Niamey; Chad: N'Djamena; Cameroon: Yaoundé;
Gabon: Libreville; Somalia: Mogadishu; Eritrea: Asmara; Djibouti: Djibouti; Malawi: Lilongwe; Liberia: Monrovia; Sierra Leone: Freetown; Guinea: Conakry; Togo: Lomé; Burkina Faso: Ouagadougou; Mauritania: Nouakchott;
the Gambia: Banjul; Lesotho: Maseru; Mauritius: Port Louis; the Seychelles: Victoria; Cape Verde: Praia; South Sudan: Juba; India: New Delhi; China: Beijing; Japan: Tokyo; South Korea: Seoul; North Korea: Pyongyang; Thailand: Bangkok;
Vietnam: Hanoi; the Philippines: Manila; Cambodia: Phnom Penh; Laos: Vientiane; Singapore: Singapore; Mongolia: Ulaanbaatar; Nepal: Kathmandu; Bhutan: Thimphu; Bangladesh: Dhaka; Pakistan: Islamabad;
Afghanistan: Kabul; Iran: Tehran; Iraq: Baghdad; Syria: Damascus; Lebanon: Beirut; Jordan: Amman; Saudi Arabia: Riyadh; Kuwait: Kuwait City; Qatar: Doha; Bahrain: Manama; the United Arab Emirates: Abu Dhabi; Oman: Muscat;
Kazakhstan: Astana; Uzbekistan: Tashkent; Turkmenistan: Ashgabat; Kyrgyzstan: Bishkek; Tajikistan: Dushanbe; Georgia: Tbilisi; Armenia: Yerevan; Azerbaijan: Baku; the Maldives: Malé; Australia: Canberra; New Zealand: Wellington;
Fiji: Suva; Papua New Guinea: Port Moresby; Samoa: Apia; Tonga: Nuku'alofa; Vanuatu: Port Vila; Canada: Ottawa; the United States: Washington, D.C.; Mexico: Mexico City; Guatemala: Guatemala City; Honduras: Tegucigalpa;
El Salvador: San Salvador; Nicaragua: Managua; Costa Rica: San José; Panama: Panama City; Cuba: Havana; Jamaica: Kingston; Haiti: Port-au-Prince; the Dominican Republic: Santo Domingo; the Bahamas: Nassau; Barbados: Bridgetown;
Trinidad and Tobago: Port of Spain; Belize: Belmopan; Brazil: Brasília; Argentina: Buenos Aires; Chile: Santiago; Peru: Lima; Colombia: Bogotá; Venezuela: Caracas; Ecuador: Quito; Uruguay: Montevideo; Paraguay: Asunción;
Guyana: Georgetown; Suriname: Paramaribo""")

CONTINENTS = _pairs("""
France: Europe; Spain: Europe; Italy: Europe; Germany: Europe; Portugal: Europe; Greece: Europe; Norway: Europe; Sweden: Europe; Finland: Europe; Poland: Europe; Austria: Europe; Hungary: Europe; Ireland: Europe; Nigeria: Africa;
Kenya: Africa; Morocco: Africa; Ethiopia: Africa; Ghana: Africa; Algeria: Africa; Tunisia: Africa; Uganda: Africa; Senegal: Africa; Zambia: Africa; Namibia: Africa; India: Asia; China: Asia; Japan: Asia; South Korea: Asia; Thailand: Asia; Vietnam: Asia;
Mongolia: Asia; Nepal: Asia; Pakistan: Asia; Iran: Asia; Iraq: Asia; Canada: North America; Mexico: North America; Cuba: North America; Panama: North America; Brazil: South America; Argentina: South America; Chile: South America; Peru: South America;
Colombia: South America; Ecuador: South America; Uruguay: South America; Bolivia: South America""")

LANGUAGES = _pairs("""
France: French; Spain: Spanish; Italy: Italian; Germany: German; Portugal: Portuguese; Greece: Greek; Norway: Norwegian; Sweden: Swedish; Poland: Polish; Hungary: Hungarian; Austria: German; Brazil: Portuguese; Argentina: Spanish; Mexico: Spanish;
Japan: Japanese; South Korea: Korean; Thailand: Thai; Vietnam: Vietnamese; Egypt: Arabic; Turkey: Turkish; Russia: Russian; Australia: English; Denmark: Danish; Iceland: Icelandic; Romania: Romanian; Bulgaria: Bulgarian; Croatia: Croatian; Cuba: Spanish; Chile: Spanish; Iran: Persian""")

SYMBOLS = _pairs("""
hydrogen: H; helium: He; lithium: Li; beryllium: Be; boron: B; carbon: C; nitrogen: N; oxygen: O; fluorine: F; neon: Ne; sodium: Na; magnesium: Mg; aluminum: Al; silicon: Si; phosphorus: P; sulfur: S; chlorine: Cl; argon: Ar; potassium: K;
calcium: Ca; titanium: Ti; chromium: Cr; manganese: Mn; iron: Fe; cobalt: Co; nickel: Ni; copper: Cu; zinc: Zn; arsenic: As; bromine: Br; krypton: Kr; silver: Ag; tin: Sn; iodine: I; xenon: Xe; platinum: Pt; gold: Au; mercury: Hg; lead: Pb; uranium: U""")

OPPOSITES = _pairs("""
hot: cold; big: small; tall: short; fast: slow; up: down; open: closed; early: late; happy: sad; old: young; full: empty; light: dark; hard: soft; strong: weak; rich: poor; wet: dry; clean: dirty; easy: difficult; loud: quiet; near: far; left: right;
good: bad; true: false; first: last; high: low; wide: narrow; thick: thin; deep: shallow; heavy: light; sharp: blunt; sweet: bitter; cheap: expensive; safe: dangerous; brave: cowardly; generous: stingy; polite: rude; beginning: end; victory: defeat;
day: night; summer: winter; north: south; east: west; inside: outside; above: below; always: never; love: hate; buy: sell; push: pull; win: lose; give: take; arrive: depart; remember: forget; increase: decrease; begin: end; accept: refuse; success: failure;
war: peace; question: answer; friend: enemy; teacher: student; front: back; top: bottom; smooth: rough; straight: crooked; tight: loose; noisy: quiet; lazy: hardworking; asleep: awake; alive: dead; visible: invisible; possible: impossible""")

PLURALS = _pairs("""
mouse: mice; child: children; foot: feet; tooth: teeth; goose: geese; man: men; woman: women; person: people; leaf: leaves; knife: knives; wolf: wolves; life: lives; wife: wives; half: halves; shelf: shelves; loaf: loaves; city: cities; baby: babies;
lady: ladies; story: stories; party: parties; box: boxes; bus: buses; dish: dishes; church: churches; watch: watches; potato: potatoes; tomato: tomatoes; hero: heroes; sheep: sheep; fish: fish; deer: deer; ox: oxen; cactus: cacti; book: books; dog: dogs; key: keys;
boy: boys; day: days; photo: photos; piano: pianos; analysis: analyses; crisis: crises; thief: thieves; scarf: scarves""")

PAST_TENSES = _pairs("""
go: went; see: saw; eat: ate; drink: drank; run: ran; write: wrote; read: read; speak: spoke; take: took; give: gave; come: came; make: made; buy: bought; bring: brought; think: thought; teach: taught; catch: caught; sing: sang; swim: swam; begin: began; fly: flew;
know: knew; grow: grew; draw: drew; drive: drove; ride: rode; break: broke; choose: chose; forget: forgot; find: found; feel: felt; keep: kept; sleep: slept; leave: left; lose: lost; meet: met; pay: paid; say: said; sell: sold; send: sent; sit: sat; stand: stood; tell: told;
understand: understood; win: won; wear: wore; walk: walked; play: played; stop: stopped; study: studied; carry: carried; try: tried; dance: danced; build: built; cut: cut; put: put""")

YOUNG = _pairs("""
a cat: a kitten; a dog: a puppy; a cow: a calf; a horse: a foal; a sheep: a lamb; a goat: a kid; a pig: a piglet; a duck: a duckling; a goose: a gosling; a hen: a chick; a lion: a cub; a bear: a cub; a wolf: a pup; a fox: a cub; a deer: a fawn; a frog: a tadpole; a butterfly: a caterpillar;
a kangaroo: a joey; a swan: a cygnet; an owl: an owlet; an eagle: an eaglet; a whale: a calf; an elephant: a calf; a seal: a pup; a rabbit: a kit; a fish: a fry; a spider: a spiderling""")

SOUNDS = _pairs("a dog: barks; a cat: meows; a cow: moos; a sheep: bleats; a horse: neighs; a pig: oinks; a duck: quacks; a lion: roars; a bee: buzzes; a snake: hisses; an owl: hoots; a frog: croaks; a rooster: crows; a wolf: howls; a mouse: squeaks; a donkey: brays")

CLASSES = _pairs("""
a dog: a mammal; a whale: a mammal; a bat: a mammal; a dolphin: a mammal; a cow: a mammal; a mouse: a mammal; an eagle: a bird; a penguin: a bird; an ostrich: a bird; a duck: a bird; a shark: a fish; a salmon: a fish; a trout: a fish; a snake: a reptile; a crocodile: a reptile; a turtle: a reptile;
a lizard: a reptile; a frog: an amphibian; a toad: an amphibian; a bee: an insect; an ant: an insect; a butterfly: an insect; a beetle: an insect; a spider: an arachnid; a crab: a crustacean; an octopus: a mollusk; a snail: a mollusk""")

COLORS = _pairs("""
grass: green; snow: white; a ripe banana: yellow; coal: black; blood: red; a clear sky: blue; a ripe tomato: red; an orange: orange; milk: white; chocolate: brown; a lemon: yellow; spinach: green; a carrot: orange; an emerald: green; a ruby: red; a sapphire: blue;
a flamingo: pink; a polar bear: white; a cherry: red; lavender: purple; salt: white; gold: yellow; a crow: black""")

MIXES = _pairs("blue and yellow: green; red and yellow: orange; red and blue: purple; red and white: pink; black and white: gray")
LEGS = _pairs("a spider: eight; an insect: six; a dog: four; a bird: two; a snake: none; a horse: four; a crab: ten; an ant: six; a chicken: two; a cat: four; a fish: none; an elephant: four; a human: two; a bee: six")
SIDES = _pairs("triangle: three; square: four; pentagon: five; hexagon: six; heptagon: seven; octagon: eight; rectangle: four; decagon: ten")
UNITS = _pairs("""
minutes in an hour: 60; seconds in a minute: 60; hours in a day: 24; days in a week: 7; months in a year: 12; days in a leap year: 366; weeks in a year: 52; years in a decade: 10; years in a century: 100; years in a millennium: 1000; centimeters in a meter: 100; meters in a kilometer: 1000;
grams in a kilogram: 1000; millimeters in a centimeter: 10; bits in a byte: 8; letters in the English alphabet: 26; items in a dozen: 12; cents in a dollar: 100; degrees in a circle: 360; players on a soccer team: 11; players on a basketball team on the court: 5; strings on a violin: 4; strings on a standard guitar: 6; keys on
a piano: 88; planets in the solar system: 8; continents on Earth: 7; colors in a rainbow: 7; cards in a standard deck: 52; squares on a chessboard: 64; seconds in an hour: 3600; minutes in a day: 1440; quarters in a year: 4""")
ABBREVIATIONS = _pairs("""
CPU: central processing unit; GPU: graphics processing unit; RAM: random access memory; HTML: HyperText Markup Language; CSS: Cascading Style Sheets; URL: Uniform Resource Locator; HTTP: HyperText Transfer Protocol; SQL: Structured Query Language; API: application programming interface; USB: Universal
Serial Bus; PDF: Portable Document Format; JSON: JavaScript Object Notation; DNA: deoxyribonucleic acid; UN: United Nations; EU: European Union; FAQ: frequently asked questions; ASAP: as soon as possible; LED: light-emitting diode; GPS: Global Positioning System; NASA: National Aeronautics and Space
Administration; WWW: World Wide Web; LLM: large language model; IDE: integrated development environment; ATM: automated teller machine; RSVP: répondez s'il vous plaît, which is French for please reply""")
INVENTIONS = _pairs("""
wrote "Romeo and Juliet": William Shakespeare; wrote "Hamlet": William Shakespeare; wrote "Pride and Prejudice": Jane Austen; wrote "Emma": Jane Austen; painted the Mona Lisa: Leonardo da Vinci; painted "The Starry Night": Vincent van Gogh; composed the Ninth Symphony with the "Ode to Joy": Ludwig van Beethoven;
composed "The Magic Flute": Wolfgang Amadeus Mozart; developed the theory of relativity: Albert Einstein; discovered penicillin: Alexander Fleming; was the first person to walk on the Moon: Neil Armstrong; was the first human in space: Yuri Gagarin; was the first president of the United States: George Washington; wrote "On the
Origin of Species": Charles Darwin; described the laws of motion and gravity: Isaac Newton; wrote "The Adventures of Tom Sawyer": Mark Twain; wrote "A Christmas Carol": Charles Dickens; wrote "Don Quixote": Miguel de Cervantes; wrote "War and Peace": Leo Tolstoy; wrote "Frankenstein": Mary Shelley; created the Python programming
language: Guido van Rossum; created Linux: Linus Torvalds; invented the World Wide Web: Tim Berners-Lee; wrote "The Odyssey": Homer; sculpted the statue of David in Florence: Michelangelo; won two Nobel Prizes for work on radioactivity: Marie Curie; invented dynamite: Alfred Nobel; wrote "Faust": Johann Wolfgang von Goethe""")
SUPERLATIVES = _pairs("""
the largest ocean: the Pacific Ocean; the highest mountain on Earth: Mount Everest; the largest planet in the solar system: Jupiter; the smallest planet in the solar system: Mercury; the planet closest to the Sun: Mercury; the planet known as the Red Planet: Mars; the largest animal: the blue whale; the tallest animal: the
giraffe; the fastest land animal: the cheetah; the largest country by area: Russia; the smallest country: Vatican City; the largest continent: Asia; the smallest continent: Australia; the coldest continent: Antarctica; the largest hot desert: the Sahara; the hardest natural material: diamond; the largest bird: the ostrich; the lightest
element: hydrogen; the galaxy we live in: the Milky Way; the star at the center of the solar system: the Sun; the largest organ of the human body: the skin; the longest bone of the human body: the thigh bone; the only even prime number: 2; the boiling point of water at sea level: 100 degrees Celsius; the freezing point of water: 0 degrees
Celsius; the gas that plants take in: carbon dioxide; the gas that humans need to breathe: oxygen; the metal that is liquid at room temperature: mercury; the closest star to Earth: the Sun; the largest moon of Saturn: Titan; the shortest month: February; the number of legs of a tripod: three; the capital letter at the start of the
alphabet: A; the season after winter: spring; the season after summer: autumn; the planet with the best-known rings: Saturn; the natural satellite of the Earth: the Moon; the process by which plants make food from light: photosynthesis; the force that pulls things toward the Earth: gravity; the center of an atom: the nucleus; the
instrument that measures temperature: the thermometer; the person who flies a plane: a pilot; the person who bakes bread: a baker; the place where books are lent: a library; the main gas in the air: nitrogen; the chemical formula of water: H2O; the main ingredient of bread: flour; the liquid that cows give: milk""")

ORDERED: dict[str, list[str]] = {
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "month": ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"],
    "planet": ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"],
    "letter": list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
}
MONTH_DAYS = dict(zip(ORDERED["month"], [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]))
