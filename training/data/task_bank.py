"""Small programming tasks as verb phrases in the third person ("returns the sum of two numbers")."""

from __future__ import annotations

from topic_bank import _items

PYTHON_TASKS: list[str] = _items("""
returns the sum of two numbers; returns the largest of three numbers; checks if a number is even; checks if a number is prime; computes the factorial of a number;
returns the first n Fibonacci numbers; reverses a string; checks if a word is a palindrome; counts the vowels in a string; counts the words in a sentence; counts
how often each word occurs; removes duplicates from a list; sorts a list of numbers; sorts words by length; sorts a list of dictionaries by a key; finds the second largest
number in a list; returns the average of a list; returns the median of a list; merges two sorted lists; flattens a nested list; splits a list into chunks; rotates a
list by k places; finds the common items of two lists; returns the difference of two sets; zips two lists into a dictionary; swaps keys and values of a dictionary;
merges two dictionaries; groups words by their first letter; finds the longest word in a sentence; capitalizes every word; converts a string to snake case; converts
snake case to camel case; removes all spaces from a string; removes punctuation from a text; counts the lines of a file; reads a file and returns its lines; writes a
list of strings to a file; appends a line to a file; copies a file; lists all files in a folder; finds all .txt files in a folder; reads a CSV file into a list of
dictionaries; writes a list of dictionaries to a CSV file; reads JSON from a file; writes a dictionary to a JSON file; parses a URL into its parts;
parses a date in the form YYYY-MM-DD; returns the number of days between two dates; returns the weekday of a date; prints the current time; formats seconds as hours,
minutes and seconds; converts Celsius to Fahrenheit; converts miles to kilometers; converts a number to binary; converts a binary string to a number; converts a Roman
numeral to a number; converts a number to a Roman numeral; checks if a year is a leap year; computes the greatest common divisor; computes the least common multiple;
lists all divisors of a number; returns the prime factors of a number; returns all primes below n; computes the sum of the digits of a number; checks if two words are
anagrams; checks if a string contains only digits; validates an email address in a simple way; checks if a password is strong; generates a random password; rolls two
dice; flips a coin n times and counts heads; shuffles a list; picks a random item from a list; plays rock, paper, scissors; implements a guessing game; prints a
multiplication table; prints a triangle of stars; prints FizzBuzz up to n; prints a chessboard of characters; draws a rectangle of characters; implements binary search;
implements linear search; implements bubble sort; implements insertion sort; implements selection sort; implements quicksort; implements merge sort; implements a stack
with push and pop; implements a queue; implements a linked list; traverses a binary tree; computes the depth of a nested list; finds the shortest path in a small
graph; performs a breadth-first search; performs a depth-first search; transposes a matrix; multiplies two matrices; adds two vectors; computes the dot product of two lists;
computes the distance between two points; computes the area of a circle; computes the area of a triangle; computes compound interest; computes the tip for a bill;
applies a discount to a price; sums the prices in a shopping cart; finds the cheapest product in a list; validates a bank card number with the Luhn check; encodes a text
with the Caesar cipher; decodes a Caesar cipher; encodes a text in Morse code; compresses a string by counting repeated letters; expands a string such as a3b2; counts the
unique words in a text; finds the most common letter; replaces words in a text by a dictionary; checks if brackets are balanced; evaluates a simple sum such as 1+2+3; wraps a text
to a given width; centers a text; aligns a table of words; filters a list with a condition; applies a function to every item of a list; composes two functions; measures
the time of a function; retries a function three times; caches the results of a function; writes a decorator that prints the arguments; writes a generator of even numbers;
writes a context manager that prints when it begins and ends; defines a class for a bank account; defines a class for a rectangle with an area method; defines a dataclass
for a book; compares two versions such as 1.2.3; clamps a number to a range; rounds a number to two decimals; returns the sign of a number; returns the running totals
of a list; returns the pairs of numbers that add up to a target; finds the missing number in a list from 1 to n; finds the maximum subarray sum; checks if a list is
sorted; counts down from n to zero; asks the user for a number until it is valid; logs a message with the time; parses command line arguments; reads an environment
variable; runs a shell command and returns its output; builds an email message; makes a histogram of a list of numbers; simulates a bank queue; returns the intersection of two ranges""")

OTHER_TASKS: dict[str, tuple[str, list[str]]] = {
    "Rust": ("function", _items("""
adds two numbers; reverses a string; checks if a number is prime; returns the largest value of a slice; counts words in a text; computes the factorial; sums a vector;
filters even numbers; reads a file to a string; splits a line at commas; parses an integer and returns a Result; sorts a vector of strings; removes duplicates from a
vector; builds a HashMap of word counts; returns the first n Fibonacci numbers; converts Celsius to Fahrenheit; returns the average of a slice of f64; matches on an enum of shapes""")),
    "JavaScript": ("function", _items("""
adds two numbers; reverses a string; checks if a string is a palindrome; removes duplicates from an array; sorts an array of numbers; filters an array of objects by a
property; groups objects by a key; fetches JSON from a URL; waits for a number of milliseconds; capitalizes the first letter; formats a date; counts the characters of a
string; adds a click handler to a button; toggles a CSS class; debounces another function; deep copies an object; sums the numbers of an array; flattens an array; validates a form field""")),
    "SQL": ("query", _items("""
selects all customers from Berlin; counts the orders of each customer; finds the five most expensive products; joins orders with customers; computes the average price by
category; finds customers without orders; inserts a new product; updates the price of a product; deletes old log entries; lists the total sales of each month; finds
duplicate email addresses; creates a table of books; adds an index on a column; returns the second highest salary; selects the newest order of each customer""")),
    "shell": ("command", _items("""
lists all files by size; finds files larger than 10 MB; counts the lines of all Python files; replaces a word in many files; renames all .jpeg files to .jpg; shows
the ten largest folders; prints the last 20 lines of a log; follows a log file; finds a process by name; makes a backup of a folder; unpacks a tar archive;
checks if a file exists; loops over all text files; prints the second column of a file; sorts a file and removes duplicate lines; shows free disk space; makes a script executable""")),
    "HTML": ("snippet", _items("""
shows a heading and a paragraph; makes a list of three links; shows an image with a caption; makes a form with a name field; makes a table with two columns; makes a button; links a
style sheet; makes a page with a header and a footer""")),
}
