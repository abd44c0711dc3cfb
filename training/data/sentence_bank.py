"""Words and sentences for prompts: names, places, rhymes, beginnings of stories, sentences to rewrite, texts to summarise."""

from __future__ import annotations

from topic_bank import _items

PERSONS: list[str] = _items("""
Anna; Ben; Clara; David; Emma; Felix; Grace; Henry; Ines; Jack; Kate; Leo; Maria; Noah; Olivia; Paul; Rosa; Sam; Tina; Victor; Wendy; Yusuf; Zoe; Amir; Chen; Priya; Sofia;
Tom; Lucy; Mark; Nina; Oscar; Ravi; Sara; Theo; Mia; Omar; Julia; Kenji; Elena; Hannah; Ivan; Lily; Max; Nora; Peter; Ruth; Simon; Tara; Will; Alice; Bruno; Daniel; Eva""")

PLACES: list[str] = _items("""
Paris; London; Rome; Madrid; Berlin; Vienna; Lisbon; Athens; Oslo; Cairo; Nairobi; Tokyo; Kyoto; Seoul; Sydney; New York; Chicago; San Francisco; Toronto; Mexico City;
Rio de Janeiro; Buenos Aires; Istanbul; Mumbai; Bangkok; Iceland; the Alps; the Sahara; the Amazon; the Grand Canyon; Hawaii; Scotland; Venice; Prague; the Great Barrier Reef""")

WORDS: list[str] = _items("""
brave; calm; curious; gentle; honest; patient; generous; lazy; clever; proud; humble; fragile; ancient; modern; rapid; silent; bright; gloomy; vast; tiny; enormous; ordinary;
rare; useful; harmless; stubborn; grateful; jealous; cheerful; weary; wander; whisper; gather; borrow; repair; admire; hesitate; explore; improve; imagine; compare; protect; predict;
measure; delay; promise; refuse; agree; celebrate; complain; journey; harvest; shelter; shadow; mystery; adventure; custom; advice; courage; wisdom; freedom; habit; neighbor;
horizon; treasure; purpose; effort; benefit; pattern; origin; rumor; ambition; compromise; deadline; feedback; efficient; reliable; ambiguous; sustainable; resilient; nostalgic""")

RHYMES: list[str] = _items("cat; light; tree; day; moon; rain; song; house; blue; star; night; bell; snow; king; ball; train; sky; hand; book; time")
OBJECTS: list[str] = _items("an old newspaper; a glass jar; a cardboard box; a broken cup; a spoon; a shoelace; a paper clip; a coat hanger; a tin can; a blanket; a pillow; a bucket; a rope; a sock")
JOBS: list[str] = _items("a teacher; a nurse; a programmer; a baker; a pilot; a waiter; a librarian; a gardener; a designer; an engineer; a journalist; a cook; a bus driver; a shop assistant")
SCHOOL_SUBJECTS: list[str] = _items("mathematics; history; biology; music; art; geography; chemistry; English; physics")
PETS: list[str] = _items("a cat; a dog; a hamster; a parrot; a goldfish; a rabbit; a turtle")
COOKING: list[str] = _items("boil an egg; cook rice; make pancakes; bake bread; make soup; fry potatoes; make an omelette; bake a cake; make a salad; cook pasta")

OPENINGS: list[str] = _items("""
It was raining when the train stopped.; Nobody had opened the door for a hundred years.; The letter had no name on it.; On Monday morning all the clocks stood still.; The
dog came home alone.; She found the map in her grandmother's kitchen.; The lights went out at midnight.; He had never seen snow before.; The robot said its first word at
breakfast.; At the end of the street there was a shop that sold only keys.; The river began to flow backwards.; I knew that something was wrong when the birds stopped singing.;
The last bus left without us.; There was a small door behind the bookshelf.; The captain looked at the sky and smiled.; Every night the painting changed a little.; The cat
looked at me as if it wanted to speak.; My grandfather kept a secret in a tin box.; The island was not on any map.; It all began with a cup of tea.""")

SENTENCES: list[str] = _items("""
The children play in the garden.; My brother drives to work every day.; She bakes a cake for her friends.; The train leaves at nine o'clock.; We are planning a trip to the
mountains.; He reads the newspaper in the morning.; The teacher explains the exercise.; They watch a film on Saturday.; The dog runs after the ball.; I drink a cup of coffee.; The
museum opens at ten.; Our team wins the match.; The sun sets behind the hills.; The students write a test.; A bird sings outside my window.; The shop sells fresh bread.; My sister
learns to play the violin.; The company is looking for a new manager.; It rains a lot in autumn.; The city builds a new bridge.; The doctor visits her patients.; The gardener
waters the flowers.; We eat dinner together.; The computer starts slowly.; The old man tells a story.; The committee has decided to postpone the meeting until next week.; The
results of the survey show that most people prefer trains to planes.; The kitchen was small, but it was warm and smelled of bread.; After a long walk we sat down by the river
and ate our sandwiches.; The new library has a quiet room, a café and a garden on the roof.; Because the road was closed, we had to take the long way home.""")

FAULTY: list[str] = _items("""
she dont like coffee; Him and me went to the shop; I has two brother; They was very happy yesterday; He go to school every days; Its a nice dog, isnt it; Me want to learn English;
Yesterday I go to the cinema; There is many people in the park; She is more taller than me; I am agree with you; He said me the truth; We was waiting since two hours; The informations
are wrong; I didn't saw him; Can you borrow me your pen?; He is good in math; I look forward to see you; She have a new car; My friend he is a doctor; where is you going; i think
its to late; Your welcome; Their going too the beach; I could of helped you; This is the most best day; He don't knows the answer; Every students must brings a book; I have went
to Paris; Let's eat grandma; We recieved you're letter; The childs are playing; She sing beautiful; He runned very fast; Much people lives here""")

INFORMAL: list[str] = _items("""
hey, can u send me that file?; I can't come tomorrow, sorry.; Gimme the numbers by Friday.; What's taking so long?; That's a dumb idea.; I want my money back.; You forgot to
pay us.; Call me when you can.; We need to talk.; The food was cold and the waiter was rude.; I don't get what you mean.; No, I don't have time for this.; Your report is late again.;
Thanks for nothing.; Turn the music down!; I'm gonna be late.; Can we do the meeting some other day?; I need help with this thing.; Where's my package?; I quit.; yeah that works for me; wanna grab lunch?""")

FORMAL: list[str] = _items("""
We regret to inform you that the event has been cancelled.; Please do not hesitate to contact us should you have any questions.; I would be grateful if you could confirm
your attendance.; It is with great pleasure that we announce our new location.; Kindly refrain from using mobile phones during the performance.; Your request has been forwarded to the
responsible department.; We would like to draw your attention to the changed opening hours.; I am writing to enquire about the position advertised last week.""")

BEGINNINGS: list[str] = _items("""
The best thing about summer is; When I was a child, I; If I had a million dollars, I would; The most important thing in a friendship is; Every morning I; A good teacher; My
favorite place is; On a rainy day I like to; The secret of a good soup is; In the future, people will; I was surprised when; Before you write code, you should; The sea was; One day I would like to""")

# Each paragraph is a list of sentences; a prompt takes a run of them.
PARAGRAPHS: list[list[str]] = [
    ["Bees live in colonies with one queen and thousands of workers.", "The workers collect nectar and pollen from flowers.", "Back in the hive, they turn the nectar into honey.", "While they visit flowers, bees carry pollen from one plant to another.", "Many fruits and vegetables could not grow without them."],
    ["The village lies at the end of a narrow valley.", "In winter the road is often closed by snow.", "About two hundred people live there all year round.", "Most of them keep sheep or work in the small hotel.", "In summer, hikers come from all over the country to see the waterfall."],
    ["Our library will close for repairs from the first of March.", "The roof has to be replaced, and the heating will be renewed.", "Books can be returned at the town hall during this time.", "We plan to open again in the middle of June.", "There will be a small party with music and cake."],
    ["A compiler translates a program into instructions that a processor understands.", "It first checks whether the program follows the rules of the language.", "Then it looks for ways to make the program faster.", "At the end it writes a file that can be run.", "Errors are reported with the line where they were found."],
    ["Tom wanted to bake a cake for his sister's birthday.", "He had flour, eggs and sugar, but no butter.", "The shop was already closed, so he asked his neighbor.", "She gave him butter and a jar of cherries.", "In the evening everybody said it was the best cake of the year."],
    ["The blue whale is the largest animal on Earth.", "It can grow to about thirty meters and weigh more than one hundred tons.", "In spite of its size it feeds on very small animals called krill.", "An adult whale eats several tons of krill a day.", "Blue whales were hunted for a long time and are now protected."],
    ["Many people find it hard to start a new habit.", "It helps to begin with something very small.", "Reading one page a day is easier than reading one book a week.", "It also helps to do the new thing at the same time every day.", "After some weeks it feels strange not to do it."],
    ["The meeting began at nine with a report on sales.", "Sales rose by eight percent compared with last year.", "Maria suggested opening a second shop in the old town.", "Most of the team liked the idea, but Paul was worried about the rent.", "The decision was moved to next month."],
    ["Rivers begin as small streams in hills and mountains.", "On their way they are joined by other streams and become wider.", "Fast rivers carry stones and sand with them.", "Where the land is flat, the river slows down and drops what it carries.", "In the end most rivers reach the sea."],
    ["Hiking boots should be bought in the afternoon, when feet are a little larger.", "Take the socks along that you will wear on the trip.", "The toes need some space at the front.", "Walk up and down a ramp before you decide.", "New boots should be worn at home for some days before a long walk."],
    ["Coffee was first grown in Ethiopia and Yemen.", "From there it spread to the cities of the Ottoman Empire.", "In the seventeenth century coffee houses opened in Venice, London and Paris.", "People met there to read, to trade and to discuss politics.", "Today coffee is one of the most traded goods in the world."],
    ["A strong password is long and not used anywhere else.", "A sentence is easier to remember than a row of signs.", "A password manager can store many passwords safely.", "With a second factor, a stolen password alone is not enough.", "No serious company asks for a password by email."],
    ["The old lighthouse stands on a rock in front of the harbor.", "For more than a century a keeper lit the lamp every evening.", "Since 1985 the light has been switched on by a computer.", "The rooms of the keeper are now a small museum.", "Visitors can climb the stairs and look far out over the sea."],
    ["Sleep is important for the brain.", "While we sleep, the brain sorts what we have learned during the day.", "Children need more sleep than adults.", "Bright screens in the evening can make it harder to fall asleep.", "A dark, cool and quiet room helps."],
    ["The city has decided to plant a thousand trees in the next two years.", "Trees give shade and cool the streets in hot summers.", "They also store water and give birds a place to live.", "Some parking spaces will be lost, which not everybody likes.", "Schools can take care of a tree and give it a name."],
    ["Version control keeps a history of all changes to a project.", "Each change has a message that says why it was made.", "If something breaks, an older version can be brought back.", "Several people can work on the same files at the same time.", "Git is the system that most projects use today."],
    ["Lena has played the violin since she was six.", "She practices for an hour every day after school.", "Last week she played in front of two hundred people for the first time.", "Her hands were cold and her heart beat fast.", "After the first notes she forgot that anyone was listening."],
    ["Deserts are places where very little rain falls.", "Not all of them are hot: Antarctica is a desert too.", "Plants in deserts have deep roots or store water in thick leaves.", "Many animals sleep during the day and come out at night.", "After a rare rain, flowers can cover the ground for a few days."],
    ["The restaurant serves simple food from the region.", "The soup changes every day and costs five dollars.", "We had fish with potatoes and a green salad.", "The service was friendly, although we had to wait for a while.", "We would go there again, but would book a table next time."],
    ["A vaccine teaches the body to recognize a disease.", "It contains a harmless part of the germ or instructions for building it.", "The immune system learns to fight it and remembers how.", "If the real germ arrives later, the body can react quickly.", "Some vaccines have to be repeated after some years."],
    ["The bicycle was invented in the nineteenth century.", "The first models had no pedals, and riders pushed with their feet.", "Later there were bicycles with a huge wheel at the front.", "They were fast but dangerous.", "The chain made it possible to build two wheels of the same size."],
    ["Grandmother's garden was full of roses and beans.", "Every Sunday we picked vegetables for lunch.", "She knew the name of every bird that came to the fence.", "In the evening we sat on the bench and listened.", "I think of that garden whenever I smell tomatoes."],
    ["Speculative decoding makes a language model answer faster.", "A small model guesses the next few words.", "The large model checks all of them in one step.", "Guesses that are right are kept, and the first wrong one is replaced.", "The text is the same as without the small model."],
    ["The train to the coast is late because of a fallen tree.", "Workers are clearing the track at the moment.", "Passengers can take the bus from platform four.", "Tickets are valid on all lines until midnight.", "We expect normal service from six o'clock in the evening."],
]
